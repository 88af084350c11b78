#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""500 mixed concurrent streams with random cancels, and a rank killed on the way (E03, E14, E15, E24).

None lost, none mixed up (every finished stream equals what the same request gives alone), no block
leaked, no process left behind, and an idle cluster uses under 2 % of a core per process.
"""
import os
import random
import signal
import threading
import time

from cluster import Cluster, cpu_seconds, wait_until
from prompts import PROMPTS

REQUESTS = int(os.environ.get("COHORT_SOAK_REQUESTS", "500"))
CLIENTS = 48  # at once
KINDS = 24    # different requests, so that each can be asked alone first
SEED = 20261


def kind(i):
    rng = random.Random(SEED + i)
    parameters = dict(prompt=PROMPTS[i % len(PROMPTS)], max_tokens=rng.randint(4, 40), ignore_eos=True,
                      return_token_ids=True)
    if i % 3 == 0:
        parameters["temperature"] = 0
    else:
        parameters.update(temperature=0.8, top_p=0.9, seed=i)
    if i % 4 == 1:
        parameters.update(presence_penalty=0.5, repetition_penalty=1.1)
    return parameters


def read(cluster, i, cancel_after):
    """("finished", tokens) or ("cancelled", tokens so far)."""
    stream = cluster.stream("/v1/completions", kind(i), timeout=240)
    assert stream.status == 200, stream.error_body
    tokens, finish = [], []
    for event in stream.events():
        assert "error" not in event, event
        for choice in event["choices"]:
            tokens += choice.get("token_ids") or []
            if choice["finish_reason"]:
                finish.append(choice["finish_reason"])
        if cancel_after is not None and len(tokens) >= cancel_after and not finish:
            stream.close()
            return "cancelled", tokens
    assert finish == ["length"], finish
    return "finished", tokens


def soak(cluster, alone, kill):
    rng = random.Random(SEED)
    jobs = [(i % KINDS, rng.randint(0, 20) if rng.random() < 0.25 else None) for i in range(REQUESTS)]
    rng.shuffle(jobs)
    lock, counts, errors = threading.Lock(), {"finished": 0, "cancelled": 0}, []

    def client():
        while True:
            with lock:
                if not jobs:
                    return
                i, cancel_after = jobs.pop()
            try:
                how, tokens = read(cluster, i, cancel_after)
                assert tokens == alone[i][:len(tokens)], f"request {i}: mixed up: {tokens} against {alone[i]}"
                assert how == "cancelled" or tokens == alone[i], f"request {i}: tokens lost"
                with lock:
                    counts[how] += 1
            except BaseException as e:
                with lock:
                    errors.append((i, repr(e)))
    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for t in threads:
        t.start()
    wait_until(lambda: sum(counts.values()) > REQUESTS // 3 or errors, 300, "a third of the requests done")
    kill()
    for t in threads:
        t.join(600)
        assert not t.is_alive(), "a client hangs"
    assert not errors, errors[:5]
    assert sum(counts.values()) == REQUESTS and counts["cancelled"] > 0, counts
    print(counts, flush=True)


def check_idle(cluster):
    processes = cluster.processes()
    before = {pid: cpu_seconds(pid) for pid in processes}
    time.sleep(10)
    used = {pid: (cpu_seconds(pid) - before[pid]) / 10 for pid in before}
    print("idle CPU:", {processes[p].split()[0].rsplit("/", 1)[-1]: round(u, 4) for p, u in used.items()}, flush=True)
    assert max(used.values()) < 0.02, {processes[p]: u for p, u in used.items()}


def main():
    with Cluster("--tp", 2, "--replicas", 2) as cluster:
        cluster.wait_all_ready(2)
        alone = [read(cluster, i, None)[1] for i in range(KINDS)]
        start = time.monotonic()

        def kill():
            replica = max((r for r in cluster.replicas() if r["state"] == "READY"), key=lambda r: r["running"])
            print(f"killing rank 1 of {replica['name']} with {replica['running']} running", flush=True)
            os.kill(replica["ranks"][1]["pid"], signal.SIGKILL)
        soak(cluster, alone, kill)
        print(f"{REQUESTS} requests in {time.monotonic() - start:.1f} s", flush=True)
        cluster.wait_all_ready(2)
        cluster.wait_idle()
        check_idle(cluster)


if __name__ == "__main__":
    main()
