#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several hosts on one machine, out of Linux namespaces.

    network.py run [--hosts 2] [--rate 1gbit] [--latency 50ms] [--burst 256kb] -- COMMAND ...

A host has a network, a name and shared memory of its own; all but the first also have process numbers
of their own, so that ranks of two hosts find no way to each other but the network. Each host has one
cable (`eth0`, a veth pair) to a switch (a bridge), which lives in a namespace of its own too: the
machine's own network is never touched. Nothing has a name outside: a namespace ends with its last
process, and those of this file end with the one that made them, even if that was killed.

The command runs on the first host (all processes that it starts are there too) and finds in its
environment:

    COHORT_HOSTS      names of the hosts, as in cohort-4711-a,cohort-4711-b
    COHORT_RSH_AGENT  takes the place of ssh: `$COHORT_RSH_AGENT HOST COMMAND...` runs a command there

It needs root. Where the kernel allows no namespaces it says so and ends with 77.
"""
import argparse
import ctypes
import os
import shlex
import signal
import socket
import subprocess
import sys
import time

SKIPPED = 77  # what ctest takes for a skipped test
SUBNET = "10.77.0"
SHAPING = dict(latency="50ms", burst="256kb")
LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1
# A login on another host brings no more of our environment than this.
LOGIN_ENVIRONMENT = ("HOME", "PATH", "LANG", "USER", "COHORT_TEST_MARK")
CONNECT_SECONDS = 3


def skip(why):
    """Ends the process; loudly, because a comparison that did not happen must not look like one."""
    print(f"SKIPPED: {os.path.basename(sys.argv[0])} needs network namespaces, and {why}", flush=True)
    sys.exit(SKIPPED)


def why_impossible():
    if os.geteuid() != 0:
        return "only root may make them"
    tried = subprocess.run(["unshare", "--net", "--uts", "--pid", "--fork", "--mount-proc", "ip", "link", "add", "v0",
                            "type", "veth", "peer", "name", "v1"], capture_output=True, text=True, check=False)
    return tried.stderr.strip() if tried.returncode else None


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def run(*command):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"{shlex.join(map(str, command))}: {result.stderr.strip()}")


class Namespace:
    """Namespaces that live as long as a sleeping process in them."""

    def __init__(self, kinds, script="", processes=False):
        # Process 1 must wait for whatever is handed to it.
        sleep = "while :; do sleep 1000 & wait $!; done" if processes else "exec sleep infinity"
        script = f"set -e\n{script}\necho ready\nexec >&-\n{sleep}"
        own = ["--pid", "--mount-proc", "--fork", "--kill-child=SIGKILL"] if processes else []
        self.kinds = kinds + (["pid"] if processes else [])
        self.process = subprocess.Popen(["unshare", *[f"--{kind}" for kind in kinds], *own, "sh", "-c", script],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, preexec_fn=die_with_parent)
        if self.process.stdout.readline() != "ready\n":
            raise RuntimeError(f"no namespace: {self.process.stderr.read().strip()}")
        self.pid = self.process.pid
        if processes:
            with open(f"/proc/{self.pid}/task/{self.pid}/children", encoding="ascii") as f:
                self.pid = int(f.read())

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


def entering(pid, kinds):
    return ["nsenter", "--target", str(pid), *[f"--{kind}" for kind in kinds]]


class Host(Namespace):
    def __init__(self, index, names, processes):
        addresses = "\n".join(f"{SUBNET}.{i + 1} {name}" for i, name in enumerate(names))
        super().__init__(["net", "uts", "mount", "ipc"], f"""
            hostname {names[index]}
            mount -t tmpfs tmpfs /dev/shm
            printf '127.0.0.1 localhost\n{addresses}\n' >/dev/shm/hosts
            mount --bind /dev/shm/hosts /etc/hosts
            ip link set lo up""", processes)
        self.index, self.name, self.address = index, names[index], f"{SUBNET}.{index + 1}"
        self.port = f"port{index}"  # of the switch

    def prefix(self):
        """Before a command: runs it on this host."""
        return entering(self.pid, self.kinds)

    def join(self):
        """This process, and what it starts from now on, moves to this host (but for its process number)."""
        folder = os.getcwd()
        for kind in ("net", "uts", "ipc", "mnt"):
            fd = os.open(f"/proc/{self.pid}/ns/{kind}", os.O_RDONLY)
            if LIBC.setns(fd, 0) != 0:
                raise OSError(ctypes.get_errno(), f"setns {kind}")
            os.close(fd)
        os.chdir(folder)
        os.environ["TMPDIR"] = "/dev/shm"

    def processes(self):
        """{number on this host: our number} of all processes with process numbers of this host."""
        own = os.readlink(f"/proc/{self.pid}/ns/pid")
        found = {}
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{entry}/ns/pid") != own:
                    continue
                with open(f"/proc/{entry}/status", encoding="utf-8") as f:
                    numbers = next(line for line in f if line.startswith("NSpid:")).split()[1:]
            except (OSError, StopIteration):
                continue  # it has ended
            found[int(numbers[-1])] = int(entry)
        return found


class Network:
    """2 to 4 hosts and their switch. Close it, or leave it to the end of the process."""

    def __init__(self, count=2, rate=None, **shaping):
        why = why_impossible()
        if why:
            skip(why)
        assert 1 <= count <= 4, count
        names = [f"cohort-{os.getpid()}-{letter}" for letter in "abcd"[:count]]
        self.switch = Namespace(["net"])
        self.hosts = []
        self.in_switch = entering(self.switch.pid, ["net"])
        run(*self.in_switch, "ip", "link", "add", "switch", "type", "bridge")
        run(*self.in_switch, "ip", "link", "set", "switch", "up")
        for index in range(count):
            self.hosts.append(self.plug_in(Host(index, names, processes=index > 0)))
        if rate:
            self.shape(rate, **shaping)

    def plug_in(self, host):
        run(*self.in_switch, "ip", "link", "add", host.port, "type", "veth", "peer", "name", "eth0", "netns", host.pid)
        run(*self.in_switch, "ip", "link", "set", host.port, "master", "switch", "up")
        run(*host.prefix(), "ip", "address", "add", f"{host.address}/24", "dev", "eth0")
        run(*host.prefix(), "ip", "link", "set", "eth0", "up")
        return host

    def shape(self, rate, latency=SHAPING["latency"], burst=SHAPING["burst"]):
        """Every cable carries so much in each direction; latency: how long a queue may get."""
        for host in self.hosts:
            for where, device in ((host.prefix(), "eth0"), (self.in_switch, host.port)):
                run(*where, "tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate, "burst", burst,
                    "latency", latency)

    def unplug(self, host):
        run(*self.in_switch, "ip", "link", "set", host.port, "down")

    def replug(self, host):
        run(*self.in_switch, "ip", "link", "set", host.port, "up")

    def environment(self):
        return {"COHORT_HOSTS": ",".join(host.name for host in self.hosts),
                "COHORT_RSH_AGENT": f"{sys.executable} {os.path.abspath(__file__)} agent",
                "COHORT_TEST_NETWORK": ",".join(f"{h.name}={h.address}={h.pid}={'+'.join(h.kinds)}" for h in self.hosts)}

    def close(self):
        for namespace in (*self.hosts, self.switch):
            namespace.close()


def agent(arguments):
    """As `ssh HOST COMMAND...`: over the network that COHORT_TEST_NETWORK describes, with a login's environment."""
    target, command = arguments[0], " ".join(arguments[1:])
    for entry in os.environ["COHORT_TEST_NETWORK"].split(","):
        name, address, pid, kinds = entry.split("=")
        if target in (name, address):
            break
    else:
        sys.exit(f"agent: no host is named {target}")
    try:
        socket.create_connection((address, 22), CONNECT_SECONDS)
    except ConnectionRefusedError:
        pass  # so it can be reached
    except OSError as why:
        print(f"agent: connect to host {target}: {why}", file=sys.stderr)
        sys.exit(255)
    login = [f"{key}={os.environ[key]}" for key in LOGIN_ENVIRONMENT if key in os.environ]
    os.execvp("nsenter", [*entering(pid, kinds.split("+")), "env", "-i", *login, "TMPDIR=/dev/shm", "sh", "-c", command])


def run_command(arguments):
    parser = argparse.ArgumentParser(prog="network.py run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=2, choices=(1, 2, 3, 4))
    parser.add_argument("--rate", help="of every cable in each direction, as tc writes it: 1gbit; default: unlimited")
    parser.add_argument("--latency", default=SHAPING["latency"], help="how long a packet may wait for its turn")
    parser.add_argument("--burst", default=SHAPING["burst"], help="what may pass at once")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    network = Network(options.hosts, options.rate, latency=options.latency, burst=options.burst)
    network.hosts[0].join()
    try:
        done = subprocess.run(options.command, env=dict(os.environ, **network.environment()), check=False,
                              preexec_fn=die_with_parent)
    finally:
        network.close()
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def main():
    verb, arguments = (sys.argv[1:2] or [""])[0], sys.argv[2:]
    if verb == "agent":
        agent(arguments)
    if verb != "run":
        sys.exit(__doc__)
    sys.exit(run_command(arguments))


if __name__ == "__main__":
    main()
