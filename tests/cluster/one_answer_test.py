#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One answer (E08-E13): the same tokens and logprobs, bit for bit, whatever surrounds a request.

8 prompts x 64 tokens, greedy and seeded, over real MPI processes. The baseline is one rank, one
thread, batch 1, cold cache; everything else must equal it exactly: JSON numbers are compared as
they were printed.
"""
import concurrent.futures
import contextlib
import os
import re
import subprocess
import sys
import threading

from cluster import BIN, Cluster
from prompts import GREEDY, PROMPTS, seeded

TOKENS = GREEDY["max_tokens"]
BLOCK = 16  # the prefix cache keeps whole blocks of so many tokens


def ask(cluster, prompt, parameters):
    """Tokens, their logprobs, and the usage."""
    status, body = cluster.post("/v1/completions", dict(prompt=prompt, return_token_ids=True, **parameters))
    assert status == 200, body
    choice = body["choices"][0]
    return choice["token_ids"], choice["logprobs"]["token_logprobs"], body["usage"]


def ask_all(cluster, concurrent=1, prompts=range(len(PROMPTS)), tokens=TOKENS):
    """Answers to the prompts, greedy and seeded, asked `concurrent` at a time, and their usages."""
    jobs = [(PROMPTS[i], dict(GREEDY, max_tokens=tokens)) for i in prompts]
    jobs += [(PROMPTS[i], dict(seeded(i), max_tokens=tokens)) for i in prompts]
    with concurrent_pool(concurrent) as pool:
        answers = list(pool.map(lambda job: ask(cluster, *job), jobs))
    return [a[:2] for a in answers], [a[2] for a in answers]


def part_of(baseline, prompts, tokens):
    """What ask_all() gives for fewer prompts and tokens."""
    chosen = list(prompts) + [len(PROMPTS) + i for i in prompts]
    return [tuple(values[:tokens] for values in baseline[i]) for i in chosen]


def check_cached(usages):
    long = [u for u in usages if u["prompt_tokens"] > BLOCK]
    assert long and all(u["prompt_tokens_details"]["cached_tokens"] > 0 for u in long), f"the cache was cold: {usages}"


def concurrent_pool(n):
    return concurrent.futures.ThreadPoolExecutor(n)


@contextlib.contextmanager
def long_company(cluster, streams):
    """Long generations beside the requests under test; read to their ends."""
    opened = [cluster.stream("/v1/completions", dict(prompt=f"Story {i}:", max_tokens=400, ignore_eos=True, seed=i))
              for i in range(streams)]
    readers = [threading.Thread(target=drain, args=(stream,)) for stream in opened]
    for reader in readers:
        reader.start()
    yield
    for stream, reader in zip(opened, readers):
        reader.join()
        stream.close()


def drain(stream):
    for _ in stream.events():
        pass


def compare(name, baseline, answers):
    for i, (want, got) in enumerate(zip(baseline, answers, strict=True)):
        if want != got:
            at = next((k for k, (a, b) in enumerate(zip(want[0], got[0])) if a != b), None)
            kind = "logprobs" if at is None else f"token {at}"
            raise AssertionError(f"{name}: answer {i} differs ({kind}):\n{want}\n{got}")
    print(f"{name}: equal", flush=True)


def vector_sets():
    """Instruction sets of this processor beside portable code, slowest first; the last one is what ranks use by default."""
    report = subprocess.run([os.path.join(BIN, "cohort"), "doctor"], capture_output=True, text=True, check=True).stdout
    return (re.search(r"this processor has portable(?:, ([\w, ]+))?;", report)[1] or "").split(", ")


# name, arguments of `cohort up`, concurrency
VARIANTS = [
    ("warm prefix", ["--threads", 1], 3),
    ("batch 16, 2 threads", ["--threads", 2], 16),
    ("chunk 7", ["--threads", 2, "--chunk", 7], 3),
    ("chunk 64", ["--threads", 2, "--chunk", 64], 1),
    # 16 sequences need about 2000 positions of 23 KB each; this holds 569.
    ("forced preemption", ["--threads", 2, "--kv-memory", "12500K"], 16),
    ("portable kernels", ["--threads", 2, "--isa", "portable"], 16),
    *[(f"{isa} kernels", ["--threads", 2, "--isa", isa], 16) for isa in vector_sets()[:-1]],
    ("tp 2", ["--tp", 2], 3),
    ("tp 3", ["--tp", 3], 3),
    ("tp 4, of 3 KV heads", ["--tp", 4], 3),
    ("pp 2", ["--pp", 2], 3),
    ("pp 3", ["--pp", 3], 16),
    ("tp 2 pp 2", ["--tp", 2, "--pp", 2], 16),
    ("shares 2:1", ["--tp", 2, "--shares", "2:1"], 3),
    ("tp 2 over MPI", ["--tp", 2, "--communicator", "mpi"], 3),
]
# Kernels without vector instructions are slow: three prompts of different scripts must do.
PARTS = {"portable kernels": dict(prompts=(0, 3, 4), tokens=24)}


def main():
    chosen = sys.argv[1:]
    with Cluster("--threads", 1) as cluster:
        baseline, _ = ask_all(cluster)
        assert all(len(tokens) == 64 for tokens, _ in baseline)
        assert len({tuple(t) for t, _ in baseline}) == len(baseline), "the prompts must not all look alike"
    for name, arguments, concurrent in VARIANTS:
        if chosen and name not in chosen:
            continue
        with Cluster(*arguments) as cluster:
            with long_company(cluster, 4 if name == "forced preemption" else 0):
                part = PARTS.get(name, dict(prompts=range(len(PROMPTS)), tokens=TOKENS))
                answers, _ = ask_all(cluster, concurrent, **part)
                compare(name, part_of(baseline, **part), answers)
            if name == "warm prefix":  # E12
                answers, usages = ask_all(cluster, concurrent)
                check_cached(usages)
                compare("all prefixes cached", baseline, answers)
            if name == "forced preemption":
                count = sum(r["preemptions"] for r in cluster.replicas())
                assert count > 0, "nothing was preempted: the variant proves nothing"
                print(f"{name}: {count} preemptions", flush=True)
            cluster.wait_idle()


if __name__ == "__main__":
    main()
