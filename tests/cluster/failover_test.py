#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No lost stream: a rank is killed in the middle of a generation (E03, E13), or stopped (E04)."""
import os
import signal
import threading
import time

from cluster import Cluster, wait_until
from prompts import GREEDY, PROMPTS, seeded

LONG = 160


def collect(cluster, prompt, parameters, progress):
    stream = cluster.stream("/v1/completions", dict(prompt=prompt, return_token_ids=True, **parameters))
    assert stream.status == 200, stream.error_body
    tokens, logprobs, text, finishes = [], [], "", []
    for event in stream.events():
        assert "error" not in event, event
        for choice in event["choices"]:
            tokens += choice.get("token_ids") or []
            text += choice["text"]
            if choice.get("logprobs"):
                logprobs += choice["logprobs"]["token_logprobs"]
            if choice["finish_reason"]:
                finishes.append(choice["finish_reason"])
        progress.append(len(tokens))
    return tokens, logprobs, text, finishes


def requests():
    more = dict(max_tokens=LONG)
    jobs = [(PROMPTS[0], {**GREEDY, **more}), (PROMPTS[2], {**seeded(2), **more}),
            (PROMPTS[7], {**GREEDY, **more}), (PROMPTS[5], {**seeded(5), **more, "frequency_penalty": 0.7,
                                                            "repetition_penalty": 1.1}),
            (PROMPTS[6], {**seeded(6), **more, "presence_penalty": 0.5, "logit_bias": {"30": -5}}),
            (PROMPTS[4], {**seeded(4), **more, "stop": ["never generated \u2603"]})]
    return jobs


def run_all(cluster, disturb=None):
    jobs = requests()
    results, progress, errors = [None] * len(jobs), [[] for _ in jobs], []

    def work(i):
        try:
            results[i] = collect(cluster, *jobs[i], progress[i])
        except BaseException as e:  # reported below, with all others
            errors.append((i, repr(e)))
    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(jobs))]
    for t in threads:
        t.start()
    if disturb:
        wait_until(lambda: all(p and p[-1] > 10 for p in progress) or errors, 60, "all streams under way")
        disturb()
    for t in threads:
        t.join(180)
    assert not errors, errors
    return results


def kill_rank(cluster, sign, rank_index):
    replica = max((r for r in cluster.replicas() if r["state"] == "READY"), key=lambda r: r["running"])
    assert replica["running"] > 0
    victim = replica["ranks"][rank_index]
    print(f"signal {sign} to rank {victim['rank']} of {replica['name']}", flush=True)
    os.kill(victim["pid"], sign)
    return replica["name"], replica["ranks"]


def check_same(name, undisturbed, disturbed):
    for want, got in zip(undisturbed, disturbed, strict=True):
        assert want == got, f"{name}: a stream changed:\n{want}\n{got}"
        assert got[3] == ["length"], got[3]
    print(f"{name}: all streams equal", flush=True)


def main():
    with Cluster("--tp", 2, "--replicas", 2) as cluster:
        cluster.wait_all_ready(2)
        undisturbed = run_all(cluster)
        for rank_index in (1, 0):
            killed = []
            disturbed = run_all(cluster, lambda: killed.append((kill_rank(cluster, signal.SIGKILL, rank_index), time.monotonic())))
            check_same(f"SIGKILL of rank {rank_index}", undisturbed, disturbed)
            (name, ranks), when = killed[0]
            wait_until(lambda: not any(os.path.exists(f"/proc/{r['pid']}") and str(r["pid"]) in
                                       map(str, cluster.processes()) for r in ranks),
                       max(0.1, 15 - (time.monotonic() - when)), "E03: no process of the dead replica left after 15 s")
            cluster.wait_all_ready(2)
            restarted = next(r for r in cluster.replicas() if r["name"] == name)
            assert restarted["restarts"] >= 1, restarted
        # E04: a stopped rank is noticed and named; its streams go on elsewhere.
        disturbed = run_all(cluster, lambda: kill_rank(cluster, signal.SIGSTOP, 1))
        check_same("SIGSTOP of rank 1", undisturbed, disturbed)
        assert "rank 1" in cluster.log_text(), "E04: the log must name the rank"
        cluster.wait_all_ready(2)
        cluster.wait_idle()
    # One replica only: its streams wait for it to come back.
    with Cluster("--tp", 2) as cluster:
        disturbed = run_all(cluster, lambda: kill_rank(cluster, signal.SIGKILL, 1))
        check_same("the only replica died and came back", undisturbed, disturbed)


if __name__ == "__main__":
    main()
