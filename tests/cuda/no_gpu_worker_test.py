#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A worker built for real GPUs, on a machine without one, says so in one line and ends with 64."""
import os
import subprocess
import sys
import tempfile

if os.path.exists("/dev/nvidia0"):
    print("this machine has a GPU")
    sys.exit(77)

MODEL = "tests/data/tiny_models/llama3_bf16"
with tempfile.TemporaryDirectory() as folder:
    done = subprocess.run([os.path.join(os.environ["COHORT_BIN"], "cohort-worker"), "--model", MODEL, "--device", "cuda",
                           "--coordinator", "127.0.0.1:9"], capture_output=True, text=True, timeout=60, check=False,
                          env=dict(os.environ, TMPDIR=folder))
said = [line for line in (done.stdout + done.stderr).splitlines() if line]
assert done.returncode == 64, (done.returncode, said)
assert len(said) == 1 and "no CUDA driver was found" in said[0] and "choose the CPU" in said[0], said
print(said[0])
