#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The hosts that other tests take for real: apart but for the network, shaped, cut off, and gone afterwards."""
import os
import signal
import socket
import subprocess
import sys
import time

from cluster import wait_until
from network import Network

PORT = 5000
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "network.py")


def output(host, *command):
    return subprocess.run([*host.prefix(), *command], capture_output=True, text=True, check=True).stdout


def check_apart(network):
    first, second, third = network.hosts
    assert {output(host, "hostname").strip() for host in network.hosts} == {host.name for host in network.hosts}
    identities = {output(host, "readlink", "/proc/self/ns/pid") for host in (first, second, third)}
    assert len(identities) == 3, "ranks of two hosts would find each other's processes"
    output(second, "touch", "/dev/shm/mine")
    assert "mine" not in output(first, "ls", "/dev/shm") + output(third, "ls", "/dev/shm")
    assert set(output(second, "ls", "/sys/class/net").split()) >= {"lo"}
    assert second.address in output(first, "getent", "hosts", second.name)


def seconds_to_send(address, total):
    """Between this process, on the first host, and a receiver on another."""
    with socket.create_connection((address, PORT), 5) as connection:
        start = time.monotonic()
        connection.sendall(bytes(total))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)  # the receiver closes when it has everything
        return time.monotonic() - start


def check_rate(network):
    total, rate = 4_000_000, 16_000_000  # bytes, bits a second
    network.shape(f"{rate}bit", latency="200ms", burst="64kb")
    listener = (f"import socket; s = socket.create_server(('', {PORT})); print('up', flush=True); c = s.accept()[0]\n"
                f"left = {total}\nwhile left > 0: left -= len(c.recv(65536))")
    with subprocess.Popen([*network.hosts[1].prefix(), sys.executable, "-c", listener], stdout=subprocess.PIPE) as receiver:
        receiver.stdout.readline()
        took = seconds_to_send(network.hosts[1].address, total)
    fastest = 8 * (total - 2 * 65536) / rate
    assert took >= 0.9 * fastest, f"{total} bytes took {took:.2f} s: the cable carries more than {rate} bits a second"
    print(f"{total} bytes took {took:.2f} s, at the given rate {8 * total / rate:.2f} s", flush=True)


def reachable(address):
    try:
        socket.create_connection((address, PORT + 1), 1)
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True


def check_cable(network):
    second, third = network.hosts[1:]
    assert reachable(second.address) and reachable(third.address)
    network.unplug(second)
    assert not reachable(second.address) and reachable(third.address)
    network.replug(second)
    wait_until(lambda: reachable(second.address), 10, "the cable is plugged in again")


def check_nothing_left():
    """Of a network whose maker was killed: neither processes nor devices."""
    before = set(os.listdir("/sys/class/net"))
    maker = subprocess.Popen([sys.executable, SCRIPT, "run", "--hosts", "2", "--rate", "1gbit", "--", "sh", "-c",
                              "readlink /proc/self/ns/net; exec sleep 60"], stdout=subprocess.PIPE, text=True)
    inside = maker.stdout.readline().strip()

    def users():
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{entry}/ns/net") == inside:
                    found.append(entry)
            except OSError:
                pass
        return found
    assert inside and users()
    os.kill(maker.pid, signal.SIGKILL)
    maker.wait()
    maker.stdout.close()
    wait_until(lambda: not users(), 10, f"processes of a network outlive its maker: {users()}")
    assert set(os.listdir("/sys/class/net")) == before


def main():
    network = Network(3)
    check_nothing_left()
    check_apart(network)
    network.hosts[0].join()
    check_cable(network)
    check_rate(network)
    network.close()


if __name__ == "__main__":
    main()
