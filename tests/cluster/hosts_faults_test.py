#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Faults between hosts (E01 to E05): a host that cannot be reached, a rank that is killed or stopped, a
cable that is cut. Streams go on, messages name rank and host, and nothing stays behind on any host."""
import os
import signal
import subprocess
import threading
import time

from cluster import BIN, wait_until
from failover_test import collect
from hosts import END_LIMIT, HostsCluster, host_arguments
from network import Network, run
from prompts import GREEDY, PROMPTS, seeded

LONG = 48
TINY = os.path.abspath(os.path.join(os.path.dirname(__file__), "../data/tiny_models/llama3"))
JOBS = [(PROMPTS[i], {**parameters, "max_tokens": LONG}) for i, parameters in ((0, GREEDY), (2, seeded(2)), (4, seeded(4)))]
# One replica has no room for all streams, so two share them.
LIMITS = ["--context", 1024, "--max-batch", len(JOBS) - 1]


class Streams:
    """The jobs, streamed; each must end as the undisturbed ones did."""

    def __init__(self, cluster):
        self.results, self.errors = [None] * len(JOBS), []
        self.progress = [[] for _ in JOBS]
        self.threads = [threading.Thread(target=self.work, args=(cluster, i)) for i in range(len(JOBS))]
        for thread in self.threads:
            thread.start()

    def work(self, cluster, i):
        try:
            self.results[i] = collect(cluster, *JOBS[i], self.progress[i])
        except BaseException as e:  # reported by join(), with all others
            self.errors.append((i, repr(e)))

    def wait_under_way(self):
        wait_until(lambda: self.errors or sum(bool(p and p[-1] > 10) for p in self.progress) >= 2, 60, "two streams under way")

    def join(self, seconds=90):
        for thread in self.threads:
            thread.join(seconds)
        assert not self.errors, self.errors
        assert None not in self.results, f"streams stand still at {[p[-1:] for p in self.progress]}"
        return self.results


def busy_replica(cluster):
    """Streams, and the name of the replica that has most of them."""
    streams = Streams(cluster)
    streams.wait_under_way()
    busiest = max(cluster.replicas(), key=lambda r: r["running"])
    assert busiest["running"] > 0, busiest
    return streams, busiest["name"]


def check_refusals(network):
    """E02: said before anything is started."""
    def refused(*arguments, expect):
        done = subprocess.run([os.path.join(BIN, "cohort"), "up", "--tp", "2", *arguments], capture_output=True, text=True,
                              timeout=20, check=False)
        assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1, done
        for word in expect:
            assert word in done.stderr, f"{word!r} is not in {done.stderr!r}"
    both = host_arguments(network, "a,b")
    refused(*both, "--network", "10.99.0.0/16", expect=["10.99.0.0/16", "eth0", network.hosts[0].address])
    refused(*both, "--network", "lo", expect=["lo (127.0.0.1)", "--network"])
    refused(*both, "--rank-host", "localhost", expect=["localhost", "127.0.0.1", "--rank-host"])
    refused("--hosts", "nowhere.invalid,127.0.0.1", expect=["nowhere.invalid"])
    refused(*host_arguments(network, "a,b,c"), expect=["3 hosts", "2 ranks"])
    refused(*host_arguments(network, "a:2,b:2"), expect=["room for 4 ranks", "has 2"])
    refused("--hosts", f"localhost,{network.hosts[0].name}", expect=["same machine"])


def check_host_missing_at_start(network, cluster):
    """E01: named within the limit; and the replica comes when the host does."""
    b = network.hosts[1].name
    cluster.wait_logged("replica-0 ended", f"nothing was started on: {b}")
    assert not cluster.where()[b]
    network.replug(network.hosts[1])
    print("E01: a host that is not there is named, and waited for", flush=True)


def check_rank_killed(cluster, undisturbed):
    """E03: a rank of another host, in the middle of streams that the other replica can take over."""
    streams, replica = busy_replica(cluster)
    old = cluster.processes_of(replica)
    victim, host = cluster.last_rank(replica)
    os.kill(victim, signal.SIGKILL)
    cluster.wait_gone(old)
    assert streams.join() == undisturbed, "a stream changed"
    cluster.wait_logged(replica, "rank 1", host.name)
    cluster.wait_all_ready(2)
    print("E03: SIGKILL of a remote rank: streams equal, nothing left", flush=True)


def check_rank_stopped(cluster, undisturbed):
    """E04: noticed within the lease, and named."""
    streams, replica = busy_replica(cluster)
    old = cluster.processes_of(replica)
    victim, host = cluster.last_rank(replica)
    os.kill(victim, signal.SIGSTOP)
    cluster.wait_gone(old)
    assert streams.join() == undisturbed, "a stream changed"
    cluster.wait_logged(replica, "rank 1", host.name)
    cluster.wait_all_ready(2)
    print("E04: SIGSTOP of a remote rank: named, nothing left", flush=True)


def check_cable_cut(network, cluster, undisturbed, replicas):
    """E03: each side ends its own part without the other; the replica comes back with the cable."""
    streams, replica = busy_replica(cluster)
    old = cluster.processes_of(replica)
    host = cluster.last_rank(replica)[1]
    assert len(old) == 2 and all(old.values()), old
    network.unplug(host)
    cut = time.monotonic()
    cluster.wait_gone(old)
    print(f"nothing is left on either side {time.monotonic() - cut:.1f} s after the cut", flush=True)
    cluster.wait_logged(replica, "rank 1", host.name)
    if replicas > 1:  # they end while the cable is still cut
        assert streams.join() == undisturbed, "a stream changed"
    network.replug(host)
    assert streams.join() == undisturbed, "a stream changed"
    cluster.wait_all_ready(replicas)
    print(f"E03: a cut cable with {replicas} replicas: streams equal", flush=True)


def check_leader_cut_off(network, cluster, undisturbed):
    """E03: a replica whose every rank is on a host that is cut off."""
    streams, replica = busy_replica(cluster)
    old = cluster.processes_of(replica)
    host = cluster.last_rank(replica)[1]
    network.unplug(host)
    cluster.wait_gone(old)
    assert streams.join() == undisturbed, "a stream changed"
    cluster.wait_logged(f"{replica} ended", f"host {host.name} is lost")
    print("E03: a leader that is cut off: streams equal, nothing left", flush=True)
    return host


def check_launcher_killed(cluster):
    """Whoever started it all is gone without a word: nothing is left on any host."""
    there = cluster.last_rank("replica-0")[1].name
    assert cluster.where()[there], cluster.where()
    cluster.process.kill()
    cluster.process.wait()
    wait_until(lambda: not cluster.processes(), END_LIMIT, f"orphans: {cluster.processes()}")
    print("SIGKILL of cohort up: nothing left", flush=True)


def check_model_missing_there(network):
    """E05: a rank other than the leader that cannot start ends the whole job, and is named."""
    b = network.hosts[1]
    run(*b.prefix(), "mount", "-t", "tmpfs", "tmpfs", TINY)
    start = time.monotonic()
    done = subprocess.run([os.path.join(BIN, "cohort"), "up", "--tp", "2", "--model", TINY, "--threads", "1",
                           "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", *host_arguments(network, "a,b")],
                          env=dict(os.environ, **network.environment()), capture_output=True, text=True, timeout=60,
                          check=False)
    assert done.returncode == 1 and done.stdout == "", done
    assert "rank 1 cannot start" in done.stderr and TINY in done.stderr, done.stderr
    run(*b.prefix(), "umount", TINY)
    print(f"E05: a rank that cannot load ends the job after {time.monotonic() - start:.1f} s", flush=True)


def main():
    network = Network(3)
    network.hosts[0].join()
    check_refusals(network)
    check_model_missing_there(network)
    # Two replicas that share the first host.
    network.unplug(network.hosts[1])
    cluster = HostsCluster(network, "a,b/a,c", "--tp", 2, "--replicas", 2, *LIMITS)
    waiting = threading.Thread(target=check_host_missing_at_start, args=(network, cluster))
    waiting.start()
    with cluster:
        waiting.join()
        cluster.wait_all_ready(2)
        undisturbed = Streams(cluster).join()
        check_rank_killed(cluster, undisturbed)
        check_rank_stopped(cluster, undisturbed)
        check_cable_cut(network, cluster, undisturbed, replicas=2)
        cluster.wait_idle()
    with HostsCluster(network, "b/c", "--replicas", 2, *LIMITS) as cluster:
        cut_off = check_leader_cut_off(network, cluster, undisturbed)
    network.replug(cut_off)  # so the cluster was told to end while it could not reach a host
    cluster = HostsCluster(network, "a,b", "--pp", 2, *LIMITS)
    try:
        cluster.wait_ready()
        check_cable_cut(network, cluster, undisturbed, replicas=1)
        check_launcher_killed(cluster)
    except BaseException:
        print(cluster.log_text()[-6000:], flush=True)
        raise
    finally:
        cluster.kill()


if __name__ == "__main__":
    main()
