# SPDX-License-Identifier: Apache-2.0
"""A real cluster for tests: `cohort up` with real processes, on ports of its own.

Every process that it starts carries a mark in its environment, so that a test can find what was
left behind, whoever its parent is by then.
"""
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("COHORT_BIN", os.path.join(ROOT, "build/cpu/bin"))
MARK = "COHORT_TEST_MARK"


def marked_processes(mark):
    """{pid: command line} of all processes that carry the mark; zombies do not count."""
    found = {}
    needle = f"{MARK}={mark}".encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as f:
                if needle not in f.read().split(b"\0"):
                    continue
            with open(f"/proc/{entry}/cmdline", "rb") as f:
                found[int(entry)] = f.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
    return {pid: line for pid, line in found.items() if line}


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_until(condition, seconds, what):
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.05)


class Stream:
    """One streaming request, read on the caller's thread event by event."""

    def __init__(self, cluster, path, body, timeout=300):
        self.connection = http.client.HTTPConnection(cluster.host, cluster.port, timeout=timeout)
        self.connection.request("POST", path, json.dumps(dict(body, stream=True)),
                                {"Content-Type": "application/json"})
        self.response = self.connection.getresponse()
        self.status = self.response.status
        self.error_body = None if self.status == 200 else self.response.read().decode()

    def events(self):
        """Yields parsed events; ends after [DONE]; raises if the stream ends without it."""
        while True:
            line = self.response.readline()
            if not line:
                raise AssertionError("the stream ended without [DONE] or an error")
            line = line.decode().strip()
            if not line.startswith("data: "):
                continue
            if line == "data: [DONE]":
                return
            yield json.loads(line[6:])

    def close(self):
        # shutdown, not only close: the response object keeps the socket open.
        if self.connection.sock:
            self.connection.sock.close()
        self.response.close()
        self.connection.close()


class Cluster:
    def __init__(self, *arguments, model="smollm2", ready_seconds=120, environment=None):
        self.mark = uuid.uuid4().hex
        self.arguments = [os.path.join(BIN, "cohort"), "up", "--model", model, "--http", "127.0.0.1:0",
                          "--grpc", "127.0.0.1:0", "--log-level", "info", *map(str, arguments)]
        self.log = tempfile.NamedTemporaryFile("w+", prefix="cohort-cluster-", suffix=".log", delete=False)
        self.process = subprocess.Popen(self.arguments, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        env=dict(os.environ, **{MARK: self.mark}, **(environment or {})))
        self.ready_line = None
        self.ready_seconds = ready_seconds

    def __enter__(self):
        try:
            self.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None:
            self.kill()  # first: whoever reads our messages may be gone
            sys.stderr.write(f"--- log of the cluster ({self.log.name}), last lines\n{self.log_text()[-6000:]}\n---\n")
            return
        code = self.stop()
        assert code == 0, f"cohort up ended with {code}\n{self.log_text()[-3000:]}"
        os.unlink(self.log.name)

    def log_text(self):
        with open(self.log.name, encoding="utf-8", errors="replace") as f:
            return f.read()

    def wait_ready(self):
        line = []
        reader = threading.Thread(target=lambda: line.append(self.process.stdout.readline()), daemon=True)
        reader.start()
        reader.join(self.ready_seconds)
        if not line or not line[0].startswith("ready: "):
            raise AssertionError(f"no ready line but {line}; log:\n{self.log_text()[-3000:]}")
        self.ready_line = line[0]
        address = self.ready_line.split("http://")[1].split(" ")[0]
        self.host, self.port = address.rsplit(":", 1)[0], int(address.rsplit(":", 1)[1])
        self.grpc = self.ready_line.split("), ")[1].split(" ")[0]

    @property
    def url(self):
        return f"http://{self.host}:{self.port}"

    def stop(self, seconds=30):
        """Ctrl-C; the exit status. Nothing may be left."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(seconds)
        self.process.stdout.close()
        wait_until(lambda: not self.processes(), 10, f"processes left behind: {self.processes()}")
        return code

    def kill(self):
        for pid in marked_processes(self.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait(10)

    def processes(self):
        return marked_processes(self.mark)

    def request(self, method, path, body=None, timeout=300, headers=None):
        """(status, parsed JSON or text)."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            payload = body if isinstance(body, (str, bytes, type(None))) else json.dumps(body)
            connection.request(method, path, payload, {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            text = response.read().decode()
            try:
                return response.status, json.loads(text)
            except json.JSONDecodeError:
                return response.status, text
        finally:
            connection.close()

    def get(self, path):
        return self.request("GET", path)

    def post(self, path, body, **more):
        return self.request("POST", path, body, **more)

    def stream(self, path, body, timeout=300):
        return Stream(self, path, body, timeout)

    def replicas(self):
        status, body = self.get("/admin/replicas")
        assert status == 200, body
        return body

    def wait_idle(self, seconds=30):
        """Until nothing runs and every block is free or cached."""
        def idle():
            replicas = self.replicas()
            return all(r["running"] == 0 and r["queued"] == 0 and
                       r["kv_blocks"]["free"] + r["kv_blocks"]["cached"] == r["kv_blocks"]["total"]
                       for r in replicas if r["state"] == "READY") and replicas
        return wait_until(idle, seconds, "idle with all blocks free or cached")

    def wait_all_ready(self, count, seconds=60):
        return wait_until(lambda: sum(r["state"] == "READY" for r in self.replicas()) == count, seconds,
                          f"{count} replicas READY")

    def complete(self, prompt, **parameters):
        """Tokens and logprobs of the first choice."""
        status, body = self.post("/v1/completions", dict(prompt=prompt, return_token_ids=True, **parameters))
        assert status == 200, body
        choice = body["choices"][0]
        logprobs = choice["logprobs"]["token_logprobs"] if choice.get("logprobs") else None
        return choice["token_ids"], logprobs
