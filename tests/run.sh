#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and runs the tests.
#
#   tests/run.sh                      everything: format, cpu, cpu-asan, cpu-tsan, fuzz
#   tests/run.sh --preset cpu-asan    one preset
#   tests/run.sh --label fast         only tests with that label (fast, cluster, reference, fuzz)
set -euo pipefail
cd "$(dirname "$0")/.."

presets=()
label=""
while (($#)); do
  case "$1" in
    --preset) presets+=("${2:?--preset needs a name}"); shift 2 ;;
    --label) label="${2:?--label needs a name}"; shift 2 ;;
    *) sed -n '3,8s/^# \{0,1\}//p' "$0"; exit 64 ;;
  esac
done
everything=false
((${#presets[@]})) || { everything=true; presets=(cpu cpu-asan cpu-tsan fuzz); }
[[ -z "$label" ]] || everything=false
[[ -z "$label" || ${#presets[@]} -ne 4 ]] || presets=(cpu)
[[ "$label" == fuzz ]] && presets=(fuzz)

source deploy/packages.sh
install_packages "${test_packages[@]}"

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

if $everything; then
  echo "== format"
  git ls-files '*.h' '*.cc' | xargs clang-format-14 --dry-run --Werror
fi

failed=()
for preset in "${presets[@]}"; do
  echo "== $preset: build"
  cmake --preset "$preset" >"build/$preset.configure.log" 2>&1 || { cat "build/$preset.configure.log"; exit 1; }
  cmake --build --preset "$preset"
  # Sanitizer builds run the tests that need one process; real clusters run optimised.
  selection=()
  if [[ -n "$label" ]]; then
    selection=(-L "^$label\$")
  elif [[ "$preset" == cpu-* ]]; then
    selection=(-L '^fast$')
  fi
  echo "== $preset: test"
  ctest --preset "$preset" "${selection[@]}" --no-tests=error -j2 || failed+=("$preset")
done

if ((${#failed[@]})); then
  echo "failed: ${failed[*]}" >&2
  exit 1
fi
echo "all passed: ${presets[*]}"
