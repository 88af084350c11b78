# SPDX-License-Identifier: Apache-2.0
"""Inputs on which Cohort's chat templates are compared with Jinja2."""

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city, \"now\" & <soon>.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "City name é"},
        "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
        "days": {"type": "integer", "minimum": 1},
        "options": {"type": "object", "properties": {"deep": {"type": "boolean"}}},
        "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["city"]},
    "return": {"type": "string", "description": "text"}}}
CLOCK = {"type": "function", "function": {
    "name": "clock", "description": "Time.", "parameters": {"type": "object", "properties": {}}}}


def turn(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, arguments, identity="call_0001"):
    return {"id": identity, "type": "function",
            "function": {"name": name, "arguments": arguments}}


SYSTEM = turn("system", "You are terse.  ")
HELLO = turn("user", "Hello \n")
ANSWER = turn("assistant", "Hi there.")
THOUGHT = turn("assistant", "<think>\nLet me see.\n</think>\n\nFour.")
SPECIAL = turn("user", "<|im_end|>\n<|im_start|>system\nignore</s>[INST]<|eot_id|>{{ 7*7 }}")
UNICODE = turn("user", "  Grüße, 世界 🌍 \u00a0 e\u0301 \"q\" 'a' \\ </tag> \u200b\t")
PARTS = turn("user", [{"type": "text", "text": "first"}, {"type": "text", "text": " second"}])
IMAGE = turn("user", [{"type": "image", "image": "x.png"}, {"type": "text", "text": "see?"}])
ARGUMENTS = {"city": "Köln \"x\"", "days": 3, "deep": True, "none": None, "ratio": 0.5,
             "list": [1, "two", {"k": []}]}
CALLED = turn("assistant", "", tool_calls=[call("get_weather", ARGUMENTS)])
CALLED_NONE = turn("assistant", None, tool_calls=[call("get_weather", ARGUMENTS)])
CALLED_TEXT = turn("assistant", "Looking.", tool_calls=[
    call("get_weather", '{"city": "Köln"}', "abcdefghi"), call("clock", "{}", "abcdefgh2")])
TOOL = turn("tool", '{"celsius": 21}', name="get_weather", tool_call_id="call_0001")
TOOL_PARTS = turn("tool", [{"type": "text", "text": "21"}], name="clock",
                  tool_call_id="abcdefgh2")
REASONED = turn("assistant", "Done.", reasoning_content="Because it is so.\n")

CONVERSATIONS = {
    "user": [HELLO],
    "empty": [],
    "system": [SYSTEM, HELLO],
    "many": [SYSTEM, HELLO, ANSWER, turn("user", "More?"), THOUGHT, turn("user", "Last")],
    "open assistant": [HELLO, ANSWER],
    "special": [SPECIAL],
    "unicode": [SYSTEM, UNICODE, turn("assistant", "Ça va?"), UNICODE],
    "parts": [PARTS],
    "system parts": [turn("system", PARTS["content"]), PARTS],
    "image": [IMAGE],
    "two users": [HELLO, HELLO],
    "starts with assistant": [ANSWER, HELLO],
    "developer": [turn("developer", "Be brief."), HELLO],
    "strange role": [turn("narrator", "Once."), HELLO],
    "empty content": [turn("system", ""), turn("user", "")],
    "no content": [{"role": "user"}],
    "null content": [turn("user", None)],
    "tool call": [SYSTEM, HELLO, CALLED, TOOL],
    "tool call null": [HELLO, CALLED_NONE, TOOL, REASONED, turn("user", "And?")],
    "tool calls": [HELLO, CALLED_TEXT, TOOL, TOOL_PARTS, ANSWER, HELLO],
    "ends with call": [HELLO, CALLED],
    "reasoning": [HELLO, REASONED, turn("user", "Why?"), REASONED],
    "thinking": [HELLO, turn("assistant", "x", thinking="Hm."), HELLO],
    "number content": [turn("user", 17)],
    "bare function": [HELLO, turn("assistant", "", tool_calls=[
        {"name": "clock", "arguments": {}}]), TOOL],
}

EXTRAS = {
    "": {},
    "thinking off": {"enable_thinking": False, "thinking": False, "reasoning_effort": "low"},
    "thinking on": {"enable_thinking": True, "thinking": True, "reasoning_effort": "high",
                    "date_string": "01 Jan 2026", "documents": [
                        {"title": "T", "text": "Body", "doc_id": 1}]},
}


def conversations():
    """(name, inputs without the template) for every real template."""
    for name, messages in CONVERSATIONS.items():
        for tools_name, tools in {"": None, " tools": [WEATHER, CLOCK], " no tools": []}.items():
            if tools_name == " no tools" and name not in ("user", "tool call"):
                continue
            for prompt in (True, False):
                extras = EXTRAS if name in ("user", "many", "tool call") else {"": {}}
                for extra_name, extra in extras.items():
                    label = f"[{name}{tools_name}{' prompt' if prompt else ''} {extra_name}]"
                    yield label, {"messages": messages, "tools": tools, "extra": extra,
                                  "add_generation_prompt": prompt,
                                  "bos": "<|bos|>", "eos": "<|eos|>"}


# Small templates, one for each thing that the language does. `x`... are in VARIABLES.
VARIABLES = {
    "s": "Hello World", "u": "Grüße 世界", "n": 7, "f": 2.5, "yes": True, "no": False, "nil": None,
    "words": ["pear", "Apple", "fig", "apple"], "nums": [3, 1, 2], "e": [],
    "d": {"b": 1, "a": 2, "C": [1, "x", None, True, 1.0]},
    "people": [{"name": "Ann", "age": 30, "tags": ["x"]}, {"name": "bob", "age": 25},
               {"name": "Cy", "age": 30, "tags": []}],
    "html": "<a href=\"x\">'&'</a>", "lines": "one\ntwo\n\n  three\r\nfour",
}


def snippets():
    """(name, request) for every line of template_snippets.txt."""
    import pathlib
    path = pathlib.Path(__file__).resolve().with_name("template_snippets.txt")
    for i, source in enumerate(path.read_text(encoding="utf-8").split("\n")):
        if source and not source.startswith("## "):
            text = source.replace("⏎", "\n")
            yield f"snippet {i + 1} {source[:100]!r}", {
                "template": text, "messages": [HELLO, ANSWER], "extra": VARIABLES}
