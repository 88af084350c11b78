#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two settings of `cohort bench model` beside each other, interleaved: A B B A ..., medians of ratios.

    COHORT_BIN=build/cpu/bin tests/bench/compare_settings.py MODEL "--threads 1 --tp 2" "--threads 2" [PAIRS] [WORK...]

WORK: arguments that both sides get (default: --prefill 512 --decode 1,8,32). A ratio above 1 means that the first
setting is faster; in brackets the least and the greatest.
"""
import json
import os
import statistics
import subprocess
import sys

BIN = os.environ.get("COHORT_BIN", "build/cpu/bin")
WORK = ["--prefill", "512", "--decode", "1,8,32"]


def measure(model, setting, work):
    command = [os.path.join(BIN, "cohort"), "bench", "model", "--model", model, *setting.split(), *work,
               "--repetitions", "3", "--json"]
    results = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["results"]
    return {f"{r['kind']} {r['size']}": r["tokens_per_second"] for r in results}


def main():
    model, first, second = sys.argv[1:4]
    pairs, work = int(sys.argv[4]) if len(sys.argv) > 4 else 5, sys.argv[5:] or WORK
    runs = []
    for i in range(pairs):
        order = [first, second][:: 1 if i % 2 == 0 else -1]
        figures = {setting: measure(model, setting, work) for setting in order}
        runs.append((figures[first], figures[second]))
    print(f"| work | {first}, tok/s | {second}, tok/s | ratio |\n| --- | --- | --- | --- |")
    for name in runs[0][0]:
        ratios = sorted(a[name] / b[name] for a, b in runs)
        a, b = (statistics.median(run[side][name] for run in runs) for side in (0, 1))
        print(f"| {name} | {a:.1f} | {b:.1f} | {statistics.median(ratios):.2f} [{ratios[0]:.2f}..{ratios[-1]:.2f}] |")


if __name__ == "__main__":
    main()
