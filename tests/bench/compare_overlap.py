#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Overlap on and off over two hosts, at several speeds of the link between them, interleaved.

    COHORT_BIN=build/cpu/bin tests/bench/compare_overlap.py [RATES] [ROUNDS] [LAYOUT...]

RATES: comma-separated, as tc writes them, or "unshaped" (default 100mbit,1gbit,unshaped). LAYOUT:
arguments of `cohort up` (default --tp 2). SmolLM2, one thread a rank, a host each (network namespaces:
as root). Two clusters stand side by side, one with --overlap on (or what COHORT_OVERLAP says: auto), one with
off; one at a time works. COHORT_WORK limits the kinds of work: "prefill 512,decode 8".

For each kind of work it prints the median time of a step's worth of it with overlap on and off, the median
of the ratios of neighbouring runs; then of the runs with overlap on, from /metrics and summed over the ranks,
communication as a part of the steps' time, what part of it was hidden, how much of the wall clock ranks
computed, and what they sent.
"""
import concurrent.futures
import os
import re
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cluster"))
from hosts import HostsCluster  # noqa: E402
from network import Network  # noqa: E402

WORK = [("prefill", 512), ("prefill", 2000), ("decode", 1), ("decode", 8), ("decode", 32), ("decode", 64)]
DECODED = 16
RANKS = 2
REPORT_SECONDS = 1.5  # until what ranks did is in /metrics


def counters(cluster):
    """Sums over ranks of cohort_rank_*_total."""
    _, text = cluster.get("/metrics")
    text = text if isinstance(text, str) else text.decode()
    sums = {}
    for name, value in re.findall(r"^cohort_rank_(\w+)_total\{[^}]*\} (\S+)$", text, re.M):
        sums[name] = sums.get(name, 0) + float(value)
    return sums


def prompt_of(tokens, number):
    """Token ids that no earlier prompt began with, so that no cache helps."""
    return [(7919 * (number + 1) + 31 * i * i + i) % 40000 + 100 for i in range(tokens)]


def prefill(cluster, size, number):
    start = time.monotonic()
    status, body = cluster.post("/v1/completions", dict(prompt=prompt_of(size, number), max_tokens=1, temperature=0,
                                                        ignore_eos=True))
    assert status == 200, body
    return time.monotonic() - start


def stream_times(cluster, number, together):
    stream = cluster.stream("/v1/completions", dict(prompt=prompt_of(4, number), max_tokens=DECODED + together,
                                                    temperature=0, ignore_eos=True, return_token_ids=True))
    assert stream.status == 200, stream.error_body
    times = []
    for event in stream.events():
        for choice in event["choices"]:
            times += [time.monotonic()] * len(choice.get("token_ids") or [])
    return times


def decode(cluster, size, number):
    """Seconds per step while all streams run: between the last first token and the first last one."""
    with concurrent.futures.ThreadPoolExecutor(size) as pool:
        all_times = list(pool.map(lambda i: stream_times(cluster, number * 100 + i, size // 4), range(size)))
    begin, end = max(t[0] for t in all_times), min(t[-1] for t in all_times)
    tokens = sum(sum(begin < at <= end for at in times) for times in all_times)
    return (end - begin) / max(1, tokens / size)


def measure(cluster, kind, size, number):
    before = counters(cluster)
    start = time.monotonic()
    seconds = (prefill if kind == "prefill" else decode)(cluster, size, number)
    wall = time.monotonic() - start
    time.sleep(REPORT_SECONDS)
    after = counters(cluster)
    return seconds, {"wall": wall, **{name: after[name] - before.get(name, 0) for name in after}}


def compare(on, off, kind, size, rounds):
    pairs, work = [], {}
    first = WORK.index((kind, size)) * 50  # prompts of its own
    for i in range(rounds + 1):
        turn = [(on, "on"), (off, "off")][::1 if i % 2 == 0 else -1]
        times = {}
        for cluster, name in turn:
            times[name], did = measure(cluster, kind, size, first + i)
            if name == "on" and i > 0:
                for key, value in did.items():
                    work[key] = work.get(key, 0) + value
        if i > 0:  # the first is for warming up
            pairs.append((times["on"], times["off"]))
    with_overlap, without = (statistics.median(p[i] for p in pairs) * 1000 for i in (0, 1))
    ratio = statistics.median(a / b for a, b in pairs)
    communication = work.get("communication_seconds", 0)
    hidden = work.get("hidden_communication_seconds", 0) / communication if communication else 0
    share = communication / max(1e-9, work.get("compute_seconds", 0) + work.get("idle_seconds", 0))
    busy = work.get("compute_seconds", 0) / work["wall"] / RANKS
    sent = work.get("bytes_sent", 0) / rounds / 1e6
    print(f"| {kind} {size} | {with_overlap:.1f} | {without:.1f} | {ratio:.3f} | {share:.0%} | {hidden:.0%} | "
          f"{busy:.0%} | {sent:.2f} |", flush=True)


def main():
    rates = (sys.argv[1] if len(sys.argv) > 1 else "100mbit,1gbit,unshaped").split(",")
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    layout = sys.argv[3:] or ["--tp", "2"]
    network = Network(2)
    network.hosts[0].join()
    more = [*layout, "--context", 2048, "--max-batch", 64]
    for rate in rates:
        if rate != "unshaped":
            network.shape(rate)
        with HostsCluster(network, "a,b", *more, "--overlap", os.environ.get("COHORT_OVERLAP", "on")) as on, \
                HostsCluster(network, "a,b", *more, "--overlap", "off") as off:
            print(f"\n{' '.join(layout)}, {rate}\n\n| work | on ms | off ms | on / off | communication | hidden | busy | MB sent |")
            print("| --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
            for kind, size in WORK:
                if f"{kind} {size}" not in os.environ.get("COHORT_WORK", f"{kind} {size}").split(","):
                    continue
                compare(on, off, kind, size, rounds)


if __name__ == "__main__":
    main()
