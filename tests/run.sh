#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and runs the tests.
#
#   tests/run.sh                      everything: format, clang-tidy, cpu, cpu-asan, cpu-tsan, fuzz, and
#                                     where the CUDA toolkit is: cuda, cuda-cluster, -asan, -race
#   tests/run.sh --preset cpu-asan    one preset
#   tests/run.sh --label fast         only tests with that label (fast, cluster, hosts, reference, threads,
#                                     fuzz, cuda)
set -euo pipefail
cd "$(dirname "$0")/.."

presets=()
label=""
while (($#)); do
  case "$1" in
    --preset) presets+=("${2:?--preset needs a name}"); shift 2 ;;
    --label) label="${2:?--label needs a name}"; shift 2 ;;
    *) sed -n '3,10s/^# \{0,1\}//p' "$0"; exit 64 ;;
  esac
done
everything=false
if ((${#presets[@]} == 0)); then
  case "$label" in
    "") everything=true; presets=(cpu cpu-asan cpu-tsan fuzz cuda cuda-cluster cuda-asan cuda-race) ;;
    fuzz) presets=(fuzz) ;;
    cuda) presets=(cuda cuda-emulation) ;;
    *) presets=(cpu) ;;
  esac
fi

source deploy/packages.sh
install_packages "${test_packages[@]}"

# The CUDA backend needs NVIDIA's toolkit, which Debian does not have. It is built and run on the
# emulation where the toolkit's headers are.
has_cuda() {
  local nvcc
  nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
  [[ -x $nvcc ]] && "$nvcc" --version | grep -q 'release 1[3-9]' || return 1
  find "$(dirname "$nvcc")/.." /usr/include -maxdepth 4 -name nccl.h -print -quit 2>/dev/null | grep -q .
}
if [[ " ${presets[*]} " == *" cuda"* ]] && ! has_cuda; then
  echo "== the CUDA toolkit 13 with NCCL is not installed: the CUDA backend is not tested here"
  kept=()
  for preset in "${presets[@]}"; do [[ $preset == cuda* ]] || kept+=("$preset"); done
  presets=("${kept[@]}")
  ((${#presets[@]})) || exit 1
fi

# Clones in different folders share what ccache has compiled.
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1

# Python is for tests only; its packages live in a folder of the build tree.
venv="$PWD/build/venv"
if ! cmp -s tests/requirements.txt "$venv/installed.txt"; then
  echo "installing Python packages for the tests into build/venv"
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r tests/requirements.txt
  cp tests/requirements.txt "$venv/installed.txt"
fi
export COHORT_PYTHON="$venv/bin/python3"

failed=()
summary=()

# step NAME COMMAND...: runs it, remembers how it ended and how long it took, and goes on.
step() {
  local name=$1 start=$SECONDS result=passed
  shift
  echo "== $name"
  "$@" || { result=FAILED; failed+=("$name"); }
  summary+=("$(printf '%-16s %-6s %5d s' "$name" "$result" $((SECONDS - start)))")
  [[ $result == passed ]]
}

check_format() { git ls-files '*.h' '*.cc' '*.cu' | xargs clang-format-14 --dry-run --Werror; }

build() {
  cmake --preset "$1" >"build/$1.configure.log" 2>&1 || { cat "build/$1.configure.log"; return 1; }
  cmake --build --preset "$1" -- -j2
}

# The small model of the reference and cluster tests; fetched once.
fetch_model() { build/cpu/bin/cohort model --model smollm2 >/dev/null; }

# Presets select what they run; a label narrows that.
run_tests() {
  local log="build/$1.ctest.log" status=0
  ctest --preset "$1" ${label:+-L "^$label\$"} 2>&1 | tee "$log" || status=$?
  results+=("$1: $(grep -E '^[0-9]+% tests passed' "$log" || echo 'ctest ran no tests')")
  # Everything that tests need was installed or fetched above: here nothing has a reason to skip but
  # tests of several hosts, for which a kernel may allow no namespaces.
  if grep -F '***Skipped' "$log"; then
    if grep -F '***Skipped' "$log" | grep -qv ' hosts_'; then
      echo "tests were skipped, see above" >&2
      status=1
    fi
    results+=("$1: SKIPPED: $(grep -F '***Skipped' "$log" | grep -o ' hosts_[a-z]*' | xargs), this kernel allows no network namespaces")
  fi
  return "$status"
}

results=()
if $everything; then step "format" check_format || true; fi
for preset in "${presets[@]}"; do
  step "$preset build" build "$preset" || continue
  if [[ "$preset" == cpu ]]; then
    step "model" fetch_model || true
    if $everything; then step "clang-tidy" tests/tidy.sh || true; fi
  fi
  step "$preset tests" run_tests "$preset" || true
done

echo "== summary"
printf '%s\n' "${summary[@]}" "${results[@]}"
if ((${#failed[@]})); then
  printf 'failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
echo "all passed: ${presets[*]}"
