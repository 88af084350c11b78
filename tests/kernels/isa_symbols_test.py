#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Units of an instruction set beyond the baseline define no function that the linker may merge with
another unit's: an inline function compiled with AVX2 could otherwise replace its baseline copy, and
a processor without AVX2 would meet it anywhere. (Weak data is the same in every unit.)

usage: isa_symbols_test.py ARCHIVE"""
import re
import subprocess
import sys


def main() -> int:
    listing = subprocess.run(
        ["nm", "--demangle", "--defined-only", sys.argv[1]], check=True, capture_output=True, text=True
    ).stdout
    units, merged, member = set(), [], ""
    for line in listing.splitlines():
        if line.endswith(".o:"):
            member = line[:-1]
            if re.search(r"_(avx2|avx512|amx)\.cc\.o$", member):
                units.add(member)
        elif member in units and len(line.split()) >= 2 and line.split()[1] == "W":
            merged.append(f"{member}: {line.split(maxsplit=2)[2]}")
    if not units:
        print("SKIPPED: the library holds no unit of another instruction set")
        return 0
    for symbol in merged:
        print("can be merged with a baseline copy:", symbol)
    print(f"{len(units)} units, {len(merged)} weak functions")
    return 1 if merged else 0


if __name__ == "__main__":
    sys.exit(main())
