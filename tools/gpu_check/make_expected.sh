#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# make_expected.sh [GPU_CHECK]: writes expected.txt anew, with the gpu_check of an emulated build
# (default: builds one). To be run where dump.cu or the emulation has changed on purpose.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=${1:-$here/../../build/gpu_check_emulated/gpu_check}
[ $# -gt 0 ] || "$here/build.sh" emulated "$(dirname "$program")"
"$program" make-expected "$here/expected.txt"
