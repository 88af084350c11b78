#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One answer over several hosts (E08, E09): every layout gives the tokens and logprobs of one rank, bit
for bit, where ranks of different hosts have nothing but the network between them."""
import concurrent.futures
import os

from cluster import Cluster
from hosts import HostsCluster
from network import Network
from prompts import GREEDY, PROMPTS, seeded

# model (a name, or a folder of tests/data/tiny_models), hosts, arguments of `cohort up`
LAYOUTS = [
    ("smollm2", "a,b", ["--tp", 2]),
    ("tiny_models/llama3", "a,b", ["--pp", 2]),
    ("tiny_models/llama3", "a,b", ["--tp", 2, "--pp", 2]),
    ("tiny_models/llama3", "a:1,b:2", ["--pp", 3]),
    # Experts spread over all ranks, attention data-parallel; then tensor-parallel within each host.
    ("tiny_models/mixtral", "a,b,c,d", ["--dp", 4]),
    ("tiny_models/mixtral", "a,b", ["--tp", 2, "--dp", 2]),
]
CONTEXT = 512
# Plain, of another script, and longer than one prefill chunk of CHUNK.
ASKED = (PROMPTS[0], PROMPTS[4], PROMPTS[7][:400])
CHUNK = 64
TOKENS = 24


def model_path(model):
    return model if "/" not in model else os.path.join(os.path.dirname(__file__), "../data", model)


def ask_all(cluster):
    jobs = [dict(GREEDY, max_tokens=TOKENS, prompt=prompt) for prompt in ASKED]
    jobs += [dict(seeded(i), max_tokens=TOKENS, prompt=prompt) for i, prompt in enumerate(ASKED)]
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(lambda job: cluster.complete(**job), jobs))


def check_spread(cluster, hosts):
    """Every host of the layout has ranks, and only those that were named."""
    used = {rank["host"][-1] for rank in cluster.replicas()[0]["ranks"]}
    assert used == {part.split(":")[0] for part in hosts.split(",")}, f"ranks run on {used}, not on {hosts}"


def main():
    network = Network(4)
    network.hosts[0].join()
    baselines = {}
    for model, hosts, arguments in LAYOUTS:
        more = ["--context", CONTEXT, "--chunk", CHUNK]
        if model not in baselines:
            with Cluster("--threads", 1, *more, model=model_path(model)) as cluster:
                baselines[model] = ask_all(cluster)
                assert all(len(tokens) == TOKENS for tokens, _ in baselines[model])
        with HostsCluster(network, hosts, *arguments, *more, model=model_path(model)) as cluster:
            check_spread(cluster, hosts)
            answers = ask_all(cluster)
        for want, got in zip(baselines[model], answers, strict=True):
            assert want == got, f"{model} {arguments} over {hosts}:\n{want}\n{got}"
        print(f"{model} {arguments} over {hosts}: equal", flush=True)


if __name__ == "__main__":
    main()
