#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs clang-tidy (.clang-tidy) over product sources, two at a time.
#
#   tests/tidy.sh             the sources that changed since COHORT_TIDY_BASE, if that is set; else
#                             a fixed quarter of all
#   tests/tidy.sh --all       all of them
#   tests/tidy.sh FILE...     these
# Needs a configured and built build/cpu (its compile commands, and headers that are generated).
set -euo pipefail
cd "$(dirname "$0")/.."
folders=(base model kernels comm parallel worker coordinator tools)

product_sources() { git ls-files "${folders[@]/%//*.cc}"; }

# Every fourth by name: the same tree gives the same verdict on any day.
quarter() { awk 'NR % 4 == 1'; }

case "${1:-}" in
  --all) files=$(product_sources) ;;
  "")
    if [[ -n "${COHORT_TIDY_BASE:-}" ]]; then
      files=$(git diff --name-only --diff-filter=d "$COHORT_TIDY_BASE" -- "${folders[@]/%//*.cc}")
    else
      files=$(product_sources | quarter)
    fi ;;
  *) files=$(printf '%s\n' "$@") ;;
esac
# Only what build/cpu compiles has a command there.
compiled=()
for file in $files; do
  if grep -q "\"file\": \"$PWD/$file\"" build/cpu/compile_commands.json; then compiled+=("$file"); fi
done
((${#compiled[@]})) || { echo "nothing to check"; exit 0; }
echo "checking ${#compiled[@]} files"
# Commands are those of g++: clang need not know all of its warnings.
printf '%s\0' "${compiled[@]}" |
  xargs -0 -n 1 -P 2 clang-tidy-14 -p build/cpu --quiet --extra-arg=-Wno-unknown-warning-option \
    2> >(grep -v 'warnings\? generated\|^Suppressed\|^Use -header-filter' >&2)
