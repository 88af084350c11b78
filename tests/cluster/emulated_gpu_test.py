#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The real worker on emulated GPUs, four ranks under mpirun behind a real coordinator.

The model is real; emulation makes every token take seconds, so answers are short.
"""
import time

from cluster import Cluster
from lifecycle_test import up_fails

GPUS = {"COHORT_EMULATED_DEVICES": "4", "COHORT_EMULATED_MEMORY": "1000000000"}
SMALL = ["--context", 128, "--max-batch", 2, "--chunk", 32]
PROMPT = "The capital of France is"


def check_refusals():
    """One line that says what is missing, and an exit code that nobody retries."""
    output = up_fails("--device", "cuda", expect=["no GPU"], environment=dict(GPUS, COHORT_EMULATED_DEVICES="0"))
    said = [line for line in output.splitlines() if "no GPU" in line]
    assert len(said) == 1, output
    up_fails("--device", "cuda:7", expect=["device 7", "4 GPUs"], environment=GPUS)
    up_fails("--device", "tpu", expect=["--device must be cpu, cuda or cuda:N"], environment=GPUS)
    up_fails("--device", "cuda", "--dtype", "f16", "--kv-dtype", "bf16", expect=["--kv-dtype", "f16"],
             environment=GPUS)
    up_fails("--device", "cuda", "--kv-dtype", "int8", expect=["GPU", "f8_e4m3", "not int8"],
             environment=GPUS)
    # What was asked for, what is free, and what to change.
    up_fails("--device", "cuda", *SMALL, expect=["asked for", "free", "--kv-memory"],
             environment=dict(GPUS, COHORT_EMULATED_MEMORY="60000000"))


def check_answer():
    started = time.monotonic()
    with Cluster("--device", "cuda", "--tp", 2, "--pp", 2, *SMALL, environment=GPUS, ready_seconds=400) as cluster:
        print(f"four ranks ready after {time.monotonic() - started:.0f} s")
        model = cluster.get("/v1/models")[1]["data"][0]["id"]
        stream = cluster.stream("/v1/completions",
                                {"model": model, "prompt": PROMPT, "max_tokens": 5, "temperature": 0}, 400)
        assert stream.status == 200, stream.error_body
        pieces = [choice["text"] for event in stream.events() for choice in event["choices"]]
        answer = "".join(pieces)
        print(f"answered after {time.monotonic() - started:.0f} s: {answer!r}")
        assert answer.startswith(" Paris"), answer
        assert sum(bool(p) for p in pieces) > 2, pieces  # streamed, not sent at once
        ranks = cluster.replicas()[0]["ranks"]
        assert len(ranks) == 4 and all("cuda" in rank["device"] for rank in ranks), ranks


if __name__ == "__main__":
    check_refusals()
    check_answer()
