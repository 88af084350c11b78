#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run_mpi_test.sh RANKS PROGRAM ARGS...: runs a test under mpirun on this host. RANKS may be 3+1:
# three ranks with COHORT_HOST=host0 in their environment, and one with host1. Skipped (77) where
# there is no mpirun.
set -eu
ranks=$1
shift
if ! command -v mpirun >/dev/null; then
  echo "SKIPPED: no mpirun"
  exit 77
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# More ranks than cores must not burn each other's time; single-copy reads of a peer's memory are
# forbidden in many containers.
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
case $ranks in
  *+*) exec mpirun -n "${ranks%+*}" env COHORT_HOST=host0 "$@" : \
                   -n "${ranks#*+}" env COHORT_HOST=host1 "$@" ;;
esac
exec mpirun -n "$ranks" "$@"
