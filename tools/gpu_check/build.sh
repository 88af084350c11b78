#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# build.sh real|emulated FOLDER: builds FOLDER/gpu_check with nothing but g++ and the CUDA toolkit.
# A GPU's machine may lack every library that the rest of the project needs, and CMake too, so the
# compilers are called directly, as many at once as there are processors (JOBS=n for others).
#   CUDA_HOME  the toolkit (default /usr/local/cuda, or where nvcc is), with NCCL; NCCL_HOME where that is elsewhere
#   ARCH       90 for sm_90 (default: of the machine's GPU, else 90)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
if [ -z "${CUDA_HOME:-}" ] && [ ! -x /usr/local/cuda/bin/nvcc ] && command -v nvcc >/dev/null; then
  CUDA_HOME=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
fi
export CUDA_HOME=${CUDA_HOME:-/usr/local/cuda}

# One file. MODE and BUILD come from below.
compile() {
  local source=$1 object=$BUILD/${1//\//_}.o
  [ "$object" -nt "$source" ] && [ "$object" -nt "$BUILD/newest_header" ] && return 0
  # No contraction of a*b+c on the host (docs/arithmetic.md). base/ and comm/ need little speed.
  local host=(-std=c++20 -O2 -g1 -ffp-contract=off -I"$root" -isystem "$CUDA_HOME/include"
              ${NCCL_HOME:+-isystem "$NCCL_HOME/include"})
  case $source in
    kernels/*.cc) host+=(-O3) ;;
    tests/cuda_emulation/*) host+=(-O3 -fno-strict-aliasing) ;;
  esac
  case $source in
    tools/gpu_check/*) host+=("-DGPU_CHECK_FOLDER=\"$root/tools/gpu_check\"") ;;
    *_avx2.cc | *_avx512.cc | *_amx.cc) host+=(-mavx2 -mfma -mf16c -Wno-ignored-attributes) ;;&
    *_avx512.cc | *_amx.cc) host+=(-mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni) ;;&
    *_amx.cc) host+=(-mamx-tile -mamx-bf16) ;;
  esac
  if [[ $source != *.cu ]]; then
    $CACHE "${CXX:-g++}" "${host[@]}" -c "$source" -o "$object"
  elif [ "$MODE" = emulated ]; then
    $CACHE "${CXX:-g++}" "${host[@]}" -fno-strict-aliasing -Wno-unknown-pragmas -x c++ -c "$source" -o "$object"
  else
    $CACHE "$CUDA_HOME/bin/nvcc" -std=c++20 -O3 -lineinfo -I"$root" ${NCCL_HOME:+-I"$NCCL_HOME/include"} \
      -gencode "arch=compute_$ARCH,code=sm_$ARCH" -c "$source" -o "$object"
  fi
}
if [ "${1:-}" = --compile ]; then
  compile "$2"
  exit
fi

export MODE=${1:?real or emulated} BUILD=${2:?folder}
CACHE=$(command -v ccache || true)
export CACHE
if [ -z "${ARCH:-}" ]; then
  ARCH=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -dc 0-9 || true)
fi
export ARCH=${ARCH:-90}
mkdir -p "$BUILD"
BUILD=$(cd "$BUILD" && pwd)
[ -f "$BUILD/newest_header" ] || touch -d 1970-01-02 "$BUILD/newest_header"
touch -r "$(find . -name '*.h' -not -path './build*' -printf '%T@ %p\n' | sort -n | tail -1 | cut -d' ' -f2-)" \
  "$BUILD/newest_header"

# Everything but what needs other libraries: files of models, MPI, gRPC, the leader.
skip='no_cuda|no_device_cuda|no_vectors|log_spdlog|sha256|comm/mpi|no_mpi'
skip+='|worker/(main|options|leader_process|rank_states)\.cc'
[ "$(uname -m)" = x86_64 ] || skip=${skip/no_vectors/_avx2|_avx512|_amx}
sources=$(ls kernels/cuda/*.cu tools/gpu_check/*.cu kernels/cuda/*.cc tools/gpu_check/*.cc \
             kernels/*.cc kernels/cpu/*.cc base/*.cc comm/*.cc parallel/*.cc \
             worker/*.cc worker/cuda/*.cc worker/layers/*.cc \
             model/config.cc model/dequantize.cc \
             tests/kernels/reference.cc tests/kernels/reference_experts.cc \
             tests/support/replay.cc tests/support/spawn_ranks.cc tests/support/tiny_checkpoint.cc \
          | grep -Ev "$skip" | sort -t. -k2,2r -s)
libraries=(-L"$CUDA_HOME/lib64" ${NCCL_HOME:+-L"$NCCL_HOME/lib"} -lcudart -lcublasLt -lnccl
           -Wl,-rpath,"$CUDA_HOME/lib64" ${NCCL_HOME:+-Wl,-rpath,"$NCCL_HOME/lib"})
if [ "$MODE" = emulated ]; then
  sources+=" $(ls tests/cuda_emulation/*.cc)"
  libraries=(-lopenblas)
fi
printf '%s\n' $sources | xargs -P "${JOBS:-$(nproc)}" -n 1 "$root/tools/gpu_check/build.sh" --compile
objects=()
for source in $sources; do objects+=("$BUILD/${source//\//_}.o"); done
"${CXX:-g++}" "${objects[@]}" "${libraries[@]}" -pthread -o "$BUILD/gpu_check"
