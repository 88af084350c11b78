#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/chat_templates/goldens.json: what Jinja2 makes of template_snippets.txt, for
the fast C++ test."""
import json
import os
import pathlib
import time

import jinja2

os.environ["TZ"] = "UTC"
time.tzset()
import render_templates
import template_cases

NOW = 1767225600


def main():
    cases = []
    for name, request in template_cases.snippets():
        answer = render_templates.render({"now": NOW, **request})
        cases.append({"name": name, "template": request["template"],
                      "text": answer.get("text")})  # null: Jinja2 refuses it
    target = pathlib.Path(__file__).resolve().parents[1] / "data/chat_templates/goldens.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    made = {"made_by": f"tests/reference/make_chat_template_goldens.py with jinja2 "
                       f"{jinja2.__version__}", "now": NOW,
            "messages": [template_cases.HELLO, template_cases.ANSWER],
            "variables": template_cases.VARIABLES, "cases": cases}
    target.write_text(json.dumps(made, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
