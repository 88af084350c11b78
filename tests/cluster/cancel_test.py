#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients that leave, and clients that are too many.

E14: a socket that is closed while its request waits, is in prefill or in decode, streamed or not,
frees its place and its blocks at once, and nobody else notices. E17: beyond the queue's limit
there are refusals that say when to come back; whoever was let in is served.
"""
import http.client
import json
import random
import socket
import threading
import time

from cluster import Cluster, wait_until

BATCH = 2
QUEUE = 16
FREED_SECONDS = 2


def send(cluster, body):
    """A request on a bare socket, so that the test decides when it is closed."""
    payload = json.dumps(body).encode()
    connection = socket.create_connection((cluster.host, cluster.port), timeout=60)
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
                       b"Content-Length: %d\r\n\r\n" % len(payload) + payload)
    return connection


def metric(cluster, name):
    _, text = cluster.get("/metrics")
    values = [float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name + "{")]
    assert values, f"{name} is not in:\n{text}"
    return sum(values)


def generated(cluster):
    return metric(cluster, "cohort_generation_tokens_total")


def open_requests(cluster):
    return metric(cluster, "cohort_num_requests_running") + metric(cluster, "cohort_num_requests_waiting")


def long_prompt(seed):
    return random.Random(seed).sample(range(1000, 40000), 3000)


def body_of(stream, **more):
    return dict(dict(prompt="Once upon a time", max_tokens=2000, ignore_eos=True, stream=stream), **more)


def close_and_expect_idle(cluster, connection, what):
    connection.close()
    start = time.monotonic()
    cluster.wait_idle(FREED_SECONDS)
    wait_until(lambda: open_requests(cluster) == 0, FREED_SECONDS, "no open request at the coordinator")
    print(f"{what}: free after {time.monotonic() - start:.2f} s", flush=True)


def check_prefill(cluster, stream):
    before = generated(cluster)
    connection = send(cluster, body_of(stream, prompt=long_prompt(stream)))
    wait_until(lambda: any(r["running"] for r in cluster.replicas()), 20, "the prompt is being read")
    assert generated(cluster) == before, "the prompt is too short to be caught in prefill"
    close_and_expect_idle(cluster, connection, f"prefill, stream {stream}")
    assert generated(cluster) == before, "a token was generated for nobody"


def check_decode(cluster, stream):
    before = generated(cluster)
    connection = send(cluster, body_of(stream))
    wait_until(lambda: generated(cluster) > before + 5 and any(r["running"] for r in cluster.replicas()), 30,
               "tokens are generated, and the replica says so")
    close_and_expect_idle(cluster, connection, f"decode, stream {stream}")
    count = generated(cluster)
    assert count < before + 2000
    time.sleep(0.5)
    assert generated(cluster) == count, "generation goes on for nobody"


def check_queue(cluster, stream):
    parameters = dict(prompt="The quick brown fox", temperature=0, max_tokens=120, ignore_eos=True)
    alone, _ = cluster.complete(**parameters)
    answers = [None] * BATCH

    def read(i):
        answers[i], _ = cluster.complete(**parameters)
    readers = [threading.Thread(target=read, args=(i,)) for i in range(BATCH)]
    for reader in readers:
        reader.start()
    wait_until(lambda: sum(r["running"] for r in cluster.replicas()) == BATCH, 20, "the batch is full")
    waiting = [send(cluster, body_of(stream)) for _ in range(6)]
    wait_until(lambda: open_requests(cluster) == BATCH + len(waiting), 20, "the others wait")
    for connection in waiting:
        connection.close()
    wait_until(lambda: open_requests(cluster) <= BATCH, FREED_SECONDS, "those who left do not wait any more")
    assert any(reader.is_alive() for reader in readers), "the batch was over too soon to prove anything"
    for reader in readers:
        reader.join(120)
    assert answers == [alone] * BATCH, f"others were disturbed: {answers} against {alone}"
    cluster.wait_idle(FREED_SECONDS)
    print(f"queue, stream {stream}: ok", flush=True)


def ask(cluster, results, i):
    connection = http.client.HTTPConnection(cluster.host, cluster.port, timeout=240)
    try:
        connection.request("POST", "/v1/completions",
                           json.dumps(dict(prompt=f"Number {i}:", max_tokens=3, ignore_eos=True)),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        results[i] = (response.status, response.getheader("Retry-After"), json.loads(response.read()))
    except OSError as e:
        results[i] = (0, None, repr(e))
    finally:
        connection.close()


def check_overload(cluster, count):
    results = [None] * count
    clients = [threading.Thread(target=ask, args=(cluster, results, i)) for i in range(count)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(240)
    served = [r for r in results if r and r[0] == 200]
    refused = [r for r in results if r and r[0] == 503]
    assert len(served) + len(refused) == count, [r for r in results if not r or r[0] not in (200, 503)][:3]
    assert len(served) >= QUEUE and refused, (len(served), len(refused))
    for _, _, body in served:
        assert body["usage"]["completion_tokens"] == 3, body
    for _, retry_after, body in refused:
        assert int(retry_after) >= 1, retry_after
        error = body["error"]
        assert error["code"] == 503 and error["type"] == "service_unavailable_error" and error["message"], body
    cluster.wait_idle(FREED_SECONDS)
    print(f"overload: {len(served)} served, {len(refused)} refused", flush=True)


def main():
    with Cluster("--tp", 2, "--max-batch", BATCH, "--chunk", 32,
                 f"--coordinator-args=--max-queue={QUEUE}") as cluster:
        for stream in (True, False):
            for check in (check_queue, check_prefill, check_decode):
                check(cluster, stream)
        check_overload(cluster, 300)


if __name__ == "__main__":
    main()
