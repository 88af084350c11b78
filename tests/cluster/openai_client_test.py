#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python `openai` client, unmodified, against a real cluster: what users point at us."""
import math

import openai

from cluster import Cluster

FRANCE = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]


def check_models(client):
    models = client.models.list().data
    assert len(models) == 1
    assert client.models.retrieve(models[0].id).id == models[0].id
    return models[0].id


def check_completions(client, model):
    reply = client.completions.create(model=model, prompt="The capital of France is", temperature=0, max_tokens=8)
    assert "Paris" in reply.choices[0].text, reply
    assert reply.choices[0].finish_reason == "length"
    assert reply.usage.completion_tokens == 8
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + 8
    several = client.completions.create(model=model, prompt=["One, two,", "Red, green,"], temperature=0, max_tokens=4)
    assert [c.index for c in several.choices] == [0, 1]
    ids = client.completions.create(model=model, prompt=[504, 3575, 282, 4649, 314], temperature=0, max_tokens=4)
    assert ids.usage.prompt_tokens == 5
    echo = client.completions.create(model=model, prompt="The capital", temperature=0, max_tokens=2, echo=True)
    assert echo.choices[0].text.startswith("The capital")


def check_chat(client, model):
    reply = client.chat.completions.create(model=model, messages=FRANCE, temperature=0, max_tokens=30)
    assert "Paris" in reply.choices[0].message.content, reply
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].finish_reason == "stop"
    parts = [{"role": "user", "content": [{"type": "text", "text": FRANCE[0]["content"]}]}]
    same = client.chat.completions.create(model=model, messages=parts, temperature=0, max_tokens=30)
    assert same.choices[0].message.content == reply.choices[0].message.content


def check_streaming(client, model):
    whole = client.chat.completions.create(model=model, messages=FRANCE, temperature=0, max_tokens=30)
    chunks = list(client.chat.completions.create(model=model, messages=FRANCE, temperature=0, max_tokens=30,
                                                 stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    finishes = [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason]
    assert finishes == ["stop"], finishes
    assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage
    assert len({c.id for c in chunks}) == 1 and len({c.created for c in chunks}) == 1
    streamed = client.completions.create(model=model, prompt="1, 2, 3,", temperature=0, max_tokens=12, stream=True)
    full = client.completions.create(model=model, prompt="1, 2, 3,", temperature=0, max_tokens=12)
    assert "".join(c.choices[0].text for c in streamed) == full.choices[0].text


def check_stop(client, model):
    full = client.completions.create(model=model, prompt="1, 2, 3,", temperature=0, max_tokens=24).choices[0].text
    stop = full[6:9]
    cut = client.completions.create(model=model, prompt="1, 2, 3,", temperature=0, max_tokens=24, stop=[stop])
    assert cut.choices[0].text == full[:full.index(stop)], (full, cut)
    assert cut.choices[0].finish_reason == "stop"
    listed = client.completions.create(model=model, prompt="1, 2, 3,", temperature=0, max_tokens=24, stop=[stop],
                                       logprobs=1).choices[0]
    # The last token may have been cut in its middle; none lies behind the cut.
    joined, last = "".join(listed.logprobs.tokens), len(listed.logprobs.tokens[-1])
    assert joined.startswith(listed.text) and len(joined) - len(listed.text) < last, listed
    streamed = client.completions.create(model=model, prompt="1, 2, 3,", temperature=0, max_tokens=24, stop=stop,
                                         stream=True)
    assert "".join(c.choices[0].text for c in streamed) == cut.choices[0].text


def check_logprobs(client, model):
    reply = client.completions.create(model=model, prompt="The capital of France is", temperature=0, max_tokens=4,
                                      logprobs=3)
    logprobs = reply.choices[0].logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == 4
    assert "".join(logprobs.tokens) == reply.choices[0].text
    assert logprobs.text_offset[1] - logprobs.text_offset[0] == len(logprobs.tokens[0])
    for own, top in zip(logprobs.token_logprobs, logprobs.top_logprobs):
        assert own <= 0 and math.isclose(own, max(top.values())) and sum(map(math.exp, top.values())) <= 1.001
    chat = client.chat.completions.create(model=model, messages=FRANCE, temperature=0, max_tokens=4, logprobs=True,
                                          top_logprobs=2)
    for entry in chat.choices[0].logprobs.content:
        assert bytes(entry.bytes).decode() == entry.token and len(entry.top_logprobs) == 2


def check_n_and_seed(client, model):
    several = client.completions.create(model=model, prompt="Once upon a time", temperature=1, max_tokens=12, n=3,
                                        seed=7)
    texts = [c.text for c in several.choices]
    assert [c.index for c in several.choices] == [0, 1, 2] and len(set(texts)) == 3, texts
    again = client.completions.create(model=model, prompt="Once upon a time", temperature=1, max_tokens=12, n=3,
                                      seed=7)
    assert [c.text for c in again.choices] == texts
    other = client.completions.create(model=model, prompt="Once upon a time", temperature=1, max_tokens=12, n=3,
                                      seed=8)
    assert [c.text for c in other.choices] != texts
    chat = client.chat.completions.create(model=model, messages=FRANCE, n=3, max_tokens=2)
    assert 0 < chat.usage.prompt_tokens_details.cached_tokens < chat.usage.prompt_tokens, chat.usage


def expect(error, parameter, call):
    try:
        call()
    except error as e:
        assert parameter is None or (e.body or {}).get("param") == parameter, (e.body, parameter)
        assert e.message
        return
    raise AssertionError(f"no {error.__name__} for {parameter}")


def check_errors(client, model):
    create = client.chat.completions.create
    expect(openai.BadRequestError, "temperature", lambda: create(model=model, messages=FRANCE, temperature=-1))
    expect(openai.BadRequestError, "top_p", lambda: create(model=model, messages=FRANCE, top_p=1.5))
    expect(openai.BadRequestError, "n", lambda: create(model=model, messages=FRANCE, n=0))
    expect(openai.BadRequestError, "messages", lambda: create(model=model, messages=[]))
    expect(openai.BadRequestError, None,
           lambda: create(model=model, messages=[{"role": "user", "content": "word " * 100000}]))
    expect(openai.BadRequestError, "max_tokens",
           lambda: client.completions.create(model=model, prompt="x", max_tokens=-5))
    expect(openai.BadRequestError, "response_format",
           lambda: create(model=model, messages=FRANCE,
                          response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}))
    expect(openai.NotFoundError, "model", lambda: create(model="no-such-model", messages=FRANCE))
    expect(openai.NotFoundError, None, lambda: client.models.retrieve("no-such-model"))


def main():
    with Cluster("--tp", 1) as cluster:
        client = openai.OpenAI(base_url=cluster.url + "/v1", api_key="none", max_retries=0, timeout=60)
        model = check_models(client)
        for check in (check_completions, check_chat, check_streaming, check_stop, check_logprobs, check_n_and_seed,
                      check_errors):
            check(client, model)
            print(f"{check.__name__}: ok", flush=True)
        cluster.wait_idle()


if __name__ == "__main__":
    main()
