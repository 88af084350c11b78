# SPDX-License-Identifier: Apache-2.0
"""Streaming clients, and what they saw: the load of a serving comparison."""
import concurrent.futures
import http.client
import json
import random
import statistics
import time

PROMPT, GENERATED = 128, 64
SAMPLING = {"temperature": 0.8, "top_k": 40, "top_p": 0.95}


def cohort_request(ids):
    return "/v1/completions", dict(prompt=ids, max_tokens=GENERATED, ignore_eos=True, stream=True, **SAMPLING)


def llama_request(ids):
    return "/completion", dict(prompt=ids, n_predict=GENERATED, ignore_eos=True, stream=True, cache_prompt=False,
                               **SAMPLING)


def stream(host, port, request, seed):
    """Times of the events that carry a token, from the request on. Servers send one token an event."""
    generator = random.Random(seed)
    path, body = request([generator.randrange(1000, 40000) for _ in range(PROMPT)])
    connection = http.client.HTTPConnection(host, port, timeout=600)
    begin = time.monotonic()
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    assert response.status == 200, response.read()
    times = []
    for line in response:
        if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
            times.append(time.monotonic() - begin)
    connection.close()
    return times


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def load(host, port, request, clients=8, each=4, seed=0):
    """One run: a dict of figures. Warm up first."""
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        def client(i):
            return [stream(host, port, request, seed * 1000 + i * 100 + k) for k in range(each)]
        runs = [times for mine in pool.map(client, range(clients)) for times in mine]
    wall = time.monotonic() - begin
    gaps = [b - a for times in runs for a, b in zip(times, times[1:])]
    # The last event of a stream may carry no token of its own, so tokens are what was asked for.
    return {"tokens_per_second": len(runs) * GENERATED / wall,
            "ttft_p50": statistics.median(times[0] for times in runs),
            "ttft_p99": percentile([times[0] for times in runs], 0.99),
            "itl_p50": statistics.median(gaps), "itl_p99": percentile(gaps, 0.99)}


def memory_of(pids):
    """Proportional set size of processes, in bytes."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as f:
                total += next(int(line.split()[1]) for line in f if line.startswith("Pss:")) * 1024
        except (OSError, StopIteration):
            continue
    return total
