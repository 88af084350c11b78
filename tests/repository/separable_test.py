#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parts stand alone: the worker's core needs neither gRPC nor MPI, the coordinator no MPI.

usage: separable_test.py SOURCE BUILD    (BUILD is a tree that was built with both)

Looks at what the built binaries load, then configures the same sources once more without gRPC and
MPI, and reads from that tree what it would compile and link. Builds nothing.
"""
import os
import re
import shutil
import subprocess
import sys

MPI = re.compile(r"lib(?:open-)?(?:mpi|rte|pal)\b", re.IGNORECASE)
GRPC = re.compile(r"lib(?:grpc|protobuf)|grpc\+\+|/generated\b", re.IGNORECASE)
# One process that loads a model, runs all layouts over threads and shared memory.
CORE_TESTS = ["worker_layouts_test", "worker_rank_group_test", "communicator_test", "matmul_test"]


def output_of(*command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{result.stdout}{result.stderr}")
    return result.stdout


def loads(path, forbidden):
    """What ldd lists for a binary and the pattern forbids."""
    return [f"{path} loads {line.strip()}" for line in output_of("ldd", path).splitlines()
            if forbidden.search(line.split("=>")[0])]


def built_binaries(build):
    errors = loads(f"{build}/bin/cohort-coordinator", MPI)
    errors += loads(f"{build}/bin/cohort", MPI)
    either = re.compile(f"{MPI.pattern}|{GRPC.pattern}", re.IGNORECASE)
    for name in CORE_TESTS:
        errors += loads(f"{build}/tests/{name}", either)
    # The check can fail: the worker does load both.
    worker = f"{build}/bin/cohort-worker"
    if not loads(worker, MPI) or not loads(worker, GRPC):
        errors.append("cohort-worker loads no MPI or no gRPC: this test looks for the wrong names")
    return errors


def without_both(source, scratch):
    shutil.rmtree(scratch, ignore_errors=True)
    output_of("cmake", "-S", source, "-B", scratch, "-G", "Ninja", "-DCOHORT_WITHOUT_GRPC=ON",
              "-DCOHORT_WITHOUT_MPI=ON")
    errors = []
    for name in CORE_TESTS:
        commands = output_of("ninja", "-C", scratch, "-t", "commands", name)
        for line in commands.splitlines():
            found = GRPC.search(line) or re.search(r"openmpi|mpich|\bmpi\.h", line)
            if found:
                errors.append(f"{name} needs {found.group(0)} without gRPC and MPI: {line[:200]}")
    targets = output_of("ninja", "-C", scratch, "-t", "targets", "all")
    if "no_mpi.cc.o" not in targets:
        errors.append("no_mpi.cc is in no target where MPI is absent")
    for absent in ("bin/cohort-coordinator:", "bin/cohort-worker:"):
        if f"\n{absent}" in targets:
            errors.append(f"{absent[:-1]} is built without gRPC")
    if "\nbin/cohort:" not in targets:
        errors.append("the cohort command is not built without gRPC and MPI")
    return errors


def main():
    source, build = (os.path.abspath(path) for path in sys.argv[1:3])
    scratch = f"{build}/separable"
    errors = built_binaries(build)
    errors += without_both(source, scratch)
    # CMake's own way to say that a package is not there, with gRPC this time.
    output_of("cmake", "-DCOHORT_WITHOUT_GRPC=OFF", "-DCOHORT_WITHOUT_MPI=OFF",
              "-DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON", scratch)
    print("\n".join(errors))
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
