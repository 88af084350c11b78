#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decode speed beside llama-bench on the same file and machine, interleaved.

    COHORT_BIN=build/cpu/bin tests/bench/compare_llama_bench.py LLAMA_BENCH [ROUNDS]

One stream, 2 threads, greedy. Cohort is timed by a client over HTTP, from the first token to the
last, so the whole serving path counts; llama-bench times its inner loop (`-p 0 -n 128`). Prints the
median of each and of the ratios of neighbouring runs: the machine moves, the ratio less so.
"""
import json
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cluster"))
from cluster import Cluster  # noqa: E402

TOKENS = 128


def peer(program, model):
    output = subprocess.run([program, "-m", model, "-t", "2", "-p", "0", "-n", str(TOKENS), "-r", "1", "-o", "json"],
                            capture_output=True, text=True, check=True).stdout
    return json.loads(output)[0]["avg_ts"]


def own(cluster):
    stream = cluster.stream("/v1/completions", dict(prompt="Once", max_tokens=TOKENS + 1, temperature=0,
                                                    ignore_eos=True, return_token_ids=True))
    tokens, first = 0, None
    for event in stream.events():
        for choice in event["choices"]:
            got = len(choice.get("token_ids") or [])
            if got and first is None:
                first, tokens = time.monotonic(), -got
            tokens += got
    return tokens / (time.monotonic() - first)


def main():
    program, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 7
    cache = os.environ.get("COHORT_MODELS", os.path.expanduser("~/.cache/cohort"))
    model = os.path.join(cache, "SmolLM2-135M-Instruct.Q4_1.gguf")
    pairs = []
    with Cluster("--threads", 2, "--isa", "avx2") as cluster:
        own(cluster)
        for _ in range(rounds):
            pairs.append((own(cluster), peer(program, model)))
            print(f"cohort {pairs[-1][0]:.1f} tok/s, llama-bench {pairs[-1][1]:.1f} tok/s", flush=True)
    ours, theirs = zip(*pairs)
    print(f"medians: cohort {statistics.median(ours):.1f}, llama-bench {statistics.median(theirs):.1f}, "
          f"ratio {statistics.median(a / b for a, b in pairs):.2f}")


if __name__ == "__main__":
    main()
