#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Renders chat templates with the Python package Jinja2 under the settings that Hugging Face
transformers uses. As a program: the requests and answers of render_template_main.cc, without
`literal`. Needs jinja2 >= 3.1.6."""
import datetime
import functools
import json
import sys

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class GenerationTag(Extension):
    """{% generation %} ... {% endgeneration %}: the body as it is."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


class ChatNamespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        values = dict(*args, **kwargs)
        for name in values:
            ChatNamespace._refuse(name)
        jinja2.utils.Namespace.__init__(self, values)

    def __setitem__(self, name, value):
        ChatNamespace._refuse(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def _refuse(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"underscore in {name!r}")


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def environment(now):
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                         extensions=[GenerationTag, loopcontrols])
    made.filters["tojson"] = tojson
    made.globals.update(raise_exception=raise_exception, namespace=ChatNamespace,
                        dict=lambda *args, **kwargs: dict(*args, **kwargs),
                        strftime_now=lambda form: now.strftime(form))
    return made


@functools.lru_cache(maxsize=4)
def compiled(source, now):
    return environment(now).from_string(source)


def render(request):
    """{"text"} or {"error"}."""
    now = datetime.datetime.now()
    if "now" in request:
        now = datetime.datetime.fromtimestamp(request["now"])
    variables = {"documents": None, **request.get("extra", {})}
    variables.update(messages=request["messages"], tools=request.get("tools"),
                     add_generation_prompt=request.get("add_generation_prompt", True),
                     bos_token=request.get("bos", "<s>"), eos_token=request.get("eos", "</s>"))
    try:
        return {"text": compiled(request["template"], now).render(**variables)}
    except Exception as error:  # whatever Python raises is an error of the template
        return {"error": f"{type(error).__name__}: {error}"}


def main():
    for line in sys.stdin:
        print(json.dumps(render(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
