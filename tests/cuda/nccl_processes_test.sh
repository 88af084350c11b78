#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# nccl_processes_test.sh RANKS PROGRAM: the emulated NCCL's ranks as mpirun starts them.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export NCCL_ID_FILE="$folder/id"
"$(dirname "$0")/../comm/run_mpi_test.sh" "$1" "$2" --rank-of-mpi
