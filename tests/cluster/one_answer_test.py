#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One answer (E08-E13): the same tokens and logprobs, bit for bit, whatever surrounds a request.

8 prompts x 64 tokens, greedy and seeded, over real MPI processes. The baseline is one rank, one
thread, batch 1, cold cache; everything else must equal it exactly: JSON numbers are compared as
they were printed.
"""
import concurrent.futures
import contextlib
import sys
import threading

from cluster import Cluster
from prompts import GREEDY, PROMPTS, seeded


def ask_all(cluster, concurrent=1, repeat=1):
    """Answers to all prompts, greedy and seeded, asked `concurrent` at a time."""
    jobs = [(p, GREEDY) for p in PROMPTS] + [(p, seeded(i)) for i, p in enumerate(PROMPTS)]
    with concurrent_pool(concurrent) as pool:
        answers = list(pool.map(lambda job: cluster.complete(job[0], **job[1]), jobs * repeat))
    return [answers[i * len(jobs):(i + 1) * len(jobs)] for i in range(repeat)]


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


# name, arguments of `cohort up`, concurrency, how often everything is asked (2: the second is warm)
VARIANTS = [
    ("batch 3, warm prefix", ["--threads", 1], 3, 2),
    ("batch 16, 2 threads", ["--threads", 2], 16, 1),
    ("chunk 7", ["--threads", 2, "--chunk", 7], 3, 1),
    ("chunk 64", ["--threads", 2, "--chunk", 64], 1, 1),
    # 16 sequences need about 2000 positions of 23 KB each; this holds 569.
    ("forced preemption", ["--threads", 2, "--kv-memory", "12500K"], 16, 1),
    ("portable kernels", ["--threads", 2, "--isa", "portable"], 16, 1),
    ("tp 2", ["--tp", 2], 3, 1),
    ("tp 3", ["--tp", 3], 3, 1),
    ("pp 2", ["--pp", 2], 3, 1),
    ("pp 3", ["--pp", 3], 16, 1),
    ("tp 2 pp 2", ["--tp", 2, "--pp", 2], 16, 1),
    ("shares 2:1", ["--tp", 2, "--shares", "2:1"], 3, 1),
    ("tp 2 over MPI", ["--tp", 2, "--communicator", "mpi"], 3, 1),
]


def main():
    chosen = sys.argv[1:]
    with Cluster("--threads", 1) as cluster:
        (baseline,) = ask_all(cluster)
        assert all(len(tokens) == 64 for tokens, _ in baseline)
        assert len({tuple(t) for t, _ in baseline}) == len(baseline), "the prompts must not all look alike"
    for name, arguments, concurrent, repeat in VARIANTS:
        if chosen and name not in chosen:
            continue
        with Cluster(*arguments) as cluster:
            with long_company(cluster, 4 if name == "forced preemption" else 0):
                for answers in ask_all(cluster, concurrent, repeat):
                    compare(name, baseline, answers)
            if name == "forced preemption":
                count = sum(r["preemptions"] for r in cluster.replicas())
                assert count > 0, "nothing was preempted: the variant proves nothing"
                print(f"{name}: {count} preemptions", flush=True)
            cluster.wait_idle()


if __name__ == "__main__":
    main()
