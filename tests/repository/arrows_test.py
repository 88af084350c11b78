#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Includes go one way: the table below is the architecture (docs/architecture.md, section 3)."""
import re
import subprocess
import sys

ALLOWED = {
    "base": set(),
    "model": {"base"},
    "kernels": {"base"},
    "comm": {"kernels", "base"},
    "parallel": {"kernels", "comm", "model", "base"},
    "worker": {"parallel", "kernels", "comm", "model", "base"},
    "coordinator": {"comm/wire", "model", "base"},
    "tools": {"tools/bench", "tools/probe", "comm/wire", "comm", "model", "base"},
    # `cohort bench`: a model or a kernel in this process, as ranks have it.
    "tools/bench": {"tools/probe", "worker", "parallel", "kernels", "comm", "model", "base"},
    "tools/probe": {"base"},
    # What measures a real GPU, never installed, stands beside the tests.
    "tools/gpu_check": {"worker", "comm", "kernels", "model", "base", "tests/support", "tests/kernels"},
}
# A GPU's sums over ranks are made by kernels, so comm may use them; nothing else of comm does.
COMM_USES_KERNELS = re.compile(r"^comm/(nccl|cuda)_")
# Where a kernel meets its compiler: nvcc, or the emulation.
SEAM = "kernels/cuda/portable.h"
# Who may know that GPUs are CUDA's.
CUDA = re.compile(r"(^|/)cuda/|_cuda|^comm/(nccl|cuda)_|^base/cuda_|^tools/gpu_check/")
CUDA_HEADER = re.compile(r"(cuda|cublas|nccl)[A-Za-z0-9_]*\.h$")
# comm/wire is messages only.
ALLOWED["comm/wire"] = set()
# Only the leader's session speaks the wire protocol; the rest of the worker must not need gRPC.
GRPC_ONLY = re.compile(r"^(comm/wire|worker/leader/(session|event_log)|worker/main|coordinator|tools)")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


# Folders within folders that have arrows of their own.
NESTED = ("comm/wire", "tools/bench", "tools/probe", "tools/gpu_check", "tests/support", "tests/kernels")


def folder(path):
    return next((f for f in NESTED if path.startswith(f + "/")), path.split("/")[0])


def sources():
    listed = subprocess.run(["git", "ls-files", "*.h", "*.cc", "*.cu", "*.cuh"], capture_output=True, text=True, check=True)
    return listed.stdout.split()


def check_file(path, text):
    own = folder(path)
    if own not in ALLOWED:
        return
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        target = match.group(2)
        if match.group(1) == '"':
            other = folder(target)
            if other == own:
                continue
            if other == "comm/wire" and own == "worker" and GRPC_ONLY.match(path):
                continue
            if path == SEAM and target.startswith("tests/cuda_emulation/"):
                continue
            if own == "comm" and other == "kernels" and not COMM_USES_KERNELS.match(path):
                yield f"{path}:{number}: of comm only what talks for GPUs may include {target}"
            elif other not in ALLOWED[own]:
                yield f"{path}:{number}: {own} must not include {target}"
        elif CUDA_HEADER.match(target) and not CUDA.search(path):
            yield f"{path}:{number}: {target} outside the CUDA backend"
        elif re.match(r"(grpcpp|google/protobuf)/", target) and not GRPC_ONLY.match(path):
            yield f"{path}:{number}: {target} outside the files that speak gRPC"
        elif target.startswith("mpi.h") and path != "comm/mpi.cc" and not path.startswith("comm/mpi"):
            yield f"{path}:{number}: MPI belongs in comm/mpi*"


def main():
    if "--self-test" in sys.argv:
        wrong = list(check_file("model/x.cc", '#include "worker/rank.h"\n'))
        wrong += check_file("coordinator/x.cc", '#include "comm/control.h"\n')
        wrong += check_file("kernels/x.cc", "#include <mpi.h>\n")
        wrong += check_file("comm/shm.cc", '#include "kernels/ops.h"\n')
        wrong += check_file("worker/rank.cc", "#include <cuda_runtime_api.h>\n")
        wrong += check_file("tools/main.cc", '#include "tools/gpu_check/parts.h"\n')
        wrong += check_file("tools/gpu_check/main.cc", '#include "tests/cuda_emulation/runtime.h"\n')
        right = list(check_file("worker/x.cc", '#include "kernels/ops.h"\n'))
        sys.exit(0 if len(wrong) == 7 and not right else 1)
    errors = [e for path in sources() for e in check_file(path, open(path, encoding="utf-8").read())]
    print("\n".join(errors))
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
