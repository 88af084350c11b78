#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Cohort's chat templates with Jinja2 under Hugging Face's settings, byte by byte: real
templates (those that llama.cpp's source package holds) over message sets, and every case of
template_cases.py. Usage: chat_template_vectors.py RENDER_TEMPLATE [FOLDER_WITH_TEMPLATES]
Exits 77 (skipped) without the package jinja2."""
import collections
import json
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
os.environ["TZ"] = "UTC"
time.tzset()

try:
    import render_templates
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
import template_cases

NOW = 1767225600  # any fixed moment
# Template -> why it differs. Empty: all are equal.
KNOWN_DIFFERENCES = {}
TEMPLATES = 71


def templates_folder():
    if len(sys.argv) > 2:
        return pathlib.Path(sys.argv[2])
    fetched = subprocess.run([sys.executable, str(HERE / "fetch_peer.py")], check=True, text=True,
                             stdout=subprocess.PIPE, timeout=900)
    return pathlib.Path(fetched.stdout.strip()) / "templates"


class Cohort:
    """The program under test, one request at a time."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, encoding="utf-8")

    def render(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"the program ended with {self.process.wait()} on {json.dumps(request)[:2000]}")
        return json.loads(answer)


def difference(expected, got):
    """None, or one line for people."""
    if "error" in expected or "error" in got:
        if "error" in expected and "error" in got:
            return None
        return f"Jinja2: {str(expected)[-150:]!r}, Cohort: {str(got)[-150:]!r}"
    if expected["text"] == got["text"]:
        return None
    at = next((i for i, (a, b) in enumerate(zip(expected["text"], got["text"])) if a != b),
              min(len(expected["text"]), len(got["text"])))
    show = lambda text: text[max(0, at - 30):at + 60]
    return f"at {at}: Jinja2 {show(expected['text'])!r}, Cohort {show(got['text'])!r}"


def compare(cohort, requests):
    """Yields (name, difference or None, whether Jinja2 rendered it)."""
    for name, request in requests:
        request = {"now": NOW, **request}
        expected = render_templates.render(request)
        yield name, difference(expected, cohort.render(request)), "text" in expected


def main():
    cohort = Cohort(sys.argv[1])
    folder = templates_folder()
    templates = sorted(folder.glob("*.jinja"))
    failures, counts = [], collections.Counter()
    unlike = set()
    for template in templates:
        source = template.read_text(encoding="utf-8")
        requests = ((f"{template.name} {name}", {"template": source, **inputs})
                    for name, inputs in template_cases.conversations())
        for name, problem, rendered in compare(cohort, requests):
            counts["rendered" if rendered else "refused"] += 1
            if problem:
                unlike.add(template.name)
                if template.name not in KNOWN_DIFFERENCES:
                    failures.append(f"{name}: {problem}")
    for name, problem, rendered in compare(cohort, template_cases.snippets()):
        counts["snippets"] += 1
        if problem:
            failures.append(f"{name}: {problem}")
    for name in set(KNOWN_DIFFERENCES) - unlike:
        failures.append(f"{name} is listed as different but is equal")
    if len(templates) != TEMPLATES:
        failures.append(f"{len(templates)} templates instead of {TEMPLATES} in {folder}")
    print("\n".join(failures))
    print(f"{len(templates) - len(unlike)} of {len(templates)} templates equal; "
          f"{counts['rendered']} renderings, {counts['refused']} refusals, "
          f"{counts['snippets']} snippets; {len(failures)} differences")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
