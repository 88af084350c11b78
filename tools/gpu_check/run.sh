#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [--emulated | --build-only] [--out DIR] [--build DIR] [--seconds N] [PART ...]
# Builds gpu_check and runs it: every part of it, or those that are named (device, kernels,
# emulation, engine, speed, nccl, sanitizer). Results: a table on standard output, and
# DIR/gpu_check.json with one log per part beside it.
#   --emulated    on the emulated device of tests/cuda_emulation, with tiny shapes
#   --build-only  only compiles and links for a real GPU
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mode=real only=no out=gpu_check_results build= arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    --emulated) mode=emulated; arguments+=(--tiny) ;;
    --build-only) only=yes ;;
    --out) out=$2; shift ;;
    --build) build=$2; shift ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
build=${build:-$here/../../build/gpu_check_$mode}
start=$(date +%s)
"$here/build.sh" "$mode" "$build"
echo "built in $(($(date +%s) - start)) s" >&2
[ $only = yes ] || exec "$build/gpu_check" --out "$out" "${arguments[@]}"
