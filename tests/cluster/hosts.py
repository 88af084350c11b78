# SPDX-License-Identifier: Apache-2.0
"""A cluster over the hosts of network.py, as tests need it."""
from cluster import Cluster, wait_until

# From a fault until the last process of a replica has ended (E03). A cut cable is noticed after the
# lease of 5 s, and two seconds later what has not ended is killed.
END_LIMIT = 15


def host_arguments(network, hosts):
    """hosts: "a,b" or "a:2,b:1/a": letters stand for names."""
    letters = {host.name[-1]: host.name for host in network.hosts}
    text = "".join(letters.get(c, c) for c in hosts)
    return ["--hosts", text, "--rsh-agent", network.environment()["COHORT_RSH_AGENT"]]


class HostsCluster(Cluster):
    """`cohort up --hosts` on the first host, which this process has joined."""

    def __init__(self, network, hosts, *arguments, **more):
        self.network = network
        super().__init__(*host_arguments(network, hosts), "--threads", 1, *arguments,
                         environment=network.environment(), **more)

    def last_rank(self, replica):
        """(our number of the process of the replica's last rank, its host); not the first host."""
        found = max(next(r for r in self.replicas() if r["name"] == replica)["ranks"], key=lambda r: r["rank"])
        host = next(h for h in self.network.hosts[1:] if h.name == found["host"])
        return host.processes()[found["pid"]], host

    def where(self):
        """{name of a host: {our number: command line}} of what belongs to replicas."""
        marked = {pid: line for pid, line in self.processes().items()
                  if "cohort-coordinator" not in line and pid != self.process.pid}
        remote = {host.name: {pid: marked[pid] for pid in host.processes().values() if pid in marked}
                  for host in self.network.hosts[1:]}
        elsewhere = {pid for found in remote.values() for pid in found}
        return {self.network.hosts[0].name: {p: line for p, line in marked.items() if p not in elsewhere}, **remote}

    def processes_of(self, replica):
        """{name of host: numbers} of where() that belong to a replica, which shares its other hosts with none."""
        first, there = self.network.hosts[0].name, self.last_rank(replica)[1].name
        found = self.where()
        return {first: {pid for pid, line in found[first].items() if replica in line}, there: set(found[there])}

    def wait_gone(self, processes, seconds=END_LIMIT):
        def left():
            running = self.processes()
            return {host: {pid: running[pid] for pid in pids if pid in running} for host, pids in processes.items()}
        wait_until(lambda: not any(left().values()), seconds, f"E03: no process of the dead replica is left: {left()}")

    def wait_logged(self, *words, seconds=END_LIMIT):
        wait_until(lambda: any(all(word in line for word in words) for line in self.log_text().splitlines()), seconds,
                   f"a line of the log with {words}")
