#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every source and test file is in a target: CMake globs nothing, so a forgotten file is dead code.

usage: targets_test.py COMPILE_COMMANDS...   (of one or more configured build trees)
"""
import json
import os
import re
import subprocess
import sys

# Built in other configurations than the one under test, or chosen by CMake by what is installed.
ELSEWHERE = ("tests/fuzz/", "tests/bench/", "base/log_stderr.cc", "base/log_spdlog.cc", "comm/mpi",
             "comm/no_mpi.cc")
# Built with CUDA or its emulation only: named in a CMakeLists.txt at least.
CUDA = re.compile(r"(^|/)cuda(_emulation)?/|_cuda\.cc$|^base/cuda_|^comm/(nccl|cuda)_|^tools/gpu_check/|\.cu$")


def main():
    root = os.getcwd()
    compiled = set()
    for commands in sys.argv[1:]:
        for entry in json.load(open(commands, encoding="utf-8")):
            compiled.add(os.path.relpath(os.path.join(entry["directory"], entry["file"]), root))
    listed = subprocess.run(["git", "ls-files", "*.cc", "*.cu"], capture_output=True, text=True, check=True).stdout
    missing = [f for f in listed.split()
               if f not in compiled and not f.startswith(ELSEWHERE) and not CUDA.search(f)]
    mentioned = "".join(open(f, encoding="utf-8").read() for f in subprocess.run(
        ["git", "ls-files", "*CMakeLists.txt"], capture_output=True, text=True, check=True).stdout.split())
    named = set(re.findall(r"[\w/]+\.c[cu]\b", mentioned))
    missing += [f for f in listed.split() if f not in compiled and CUDA.search(f) and
                not any(f == n or f.endswith("/" + n) for n in named)]
    listed = subprocess.run(["git", "ls-files", "tests/*.py", "tests/*.cc"], capture_output=True, text=True, check=True)
    scripts = [f for f in listed.stdout.split() if f.endswith(("_test.py", "_fuzz.cc"))]
    # cohort_cluster_test(NAME TIMEOUT) stands for tests/cluster/NAME_test.py, cohort_hosts_test(NAME
    # TIMEOUT) for tests/cluster/hosts_NAME_test.py.
    by_name = {f"tests/cluster/{'hosts_' if kind == 'hosts' else ''}{name}_test.py"
               for kind, name in re.findall(r"^\s*cohort_(cluster|hosts)_test\((\w+)\s", mentioned, re.MULTILINE)}
    missing += [f for f in scripts if f not in by_name and
                os.path.basename(f) not in mentioned and os.path.basename(f)[:-3] not in mentioned]
    for f in missing:
        print(f"{f} is in no target")
    sys.exit(1 if missing or not compiled else 0)


if __name__ == "__main__":
    main()
