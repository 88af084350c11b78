#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a formatter does not see: sizes, licence lines, words that the glossary bans, loops over what is gone."""
import re
import subprocess
import sys

HARD_CAP_LINES = 600
BANNED = re.compile(r"\b(?:class|struct)\s+\w*(?:Engine|Manager|Handler|Context|Helper|Utils)\b")
FEATURE_IF = re.compile(r"^\s*#\s*if")
# The pointer that the call returns is gone before the first iteration (until C++23).
DANGLING_FOR = re.compile(r"\bfor \([^;()]* : [^;()]*\w\([^()]*\)->\w+\)")


def main():
    listed = subprocess.run(["git", "ls-files", "*.h", "*.cc"], capture_output=True, text=True, check=True)
    errors, lines_total, conditionals = [], 0, 0
    for path in listed.stdout.split():
        lines = open(path, encoding="utf-8").read().splitlines()
        if not lines or "SPDX-License-Identifier: Apache-2.0" not in lines[0]:
            errors.append(f"{path}: the first line is not the licence line")
        if path.endswith(".h") and "#pragma once" not in lines[:60]:
            errors.append(f"{path}: no #pragma once")
        if len(lines) > HARD_CAP_LINES:
            errors.append(f"{path}: {len(lines)} lines, cap {HARD_CAP_LINES}")
        for number, line in enumerate(lines, 1):
            if BANNED.search(line):
                errors.append(f"{path}:{number}: banned word in a type name: {line.strip()}")
            if DANGLING_FOR.search(line):
                errors.append(f"{path}:{number}: iterates over what a temporary pointer owns; keep the pointer first")
            if FEATURE_IF.match(line) and not path.startswith("tests/"):
                conditionals += 1
        if not path.startswith("tests/"):
            lines_total += len(lines)
    if conditionals * 1000 > lines_total:
        errors.append(f"{conditionals} preprocessor conditions in {lines_total} lines: more than 1 in 1000")
    print("\n".join(errors))
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
