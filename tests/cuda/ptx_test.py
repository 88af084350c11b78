#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looks at the code that nvcc makes of every kernel, for sm_80: registers, spills, stack, and
instructions that must or must not be there. What no test without a GPU can measure (a load split
into 2-byte pieces, a spilled accumulator) is seen here.

ptx_rules.json: "patterns", names of regular expressions over PTX, and "rules". The first rule whose
"kernel" (a regular expression over names such as "norm_in_registers<float, 8>") matches all of a
kernel's name is its rule:
  registers  at most so many
  contains   names of patterns that the kernel's PTX must match
  absent     of those that it must not match
Each kernel needs a rule and each rule a kernel. No kernel may spill or have a stack frame.

usage: ptx_test.py NVCC CACHE_FOLDER [file.cu ...]    default: all of kernels/cuda
"""
import concurrent.futures
import hashlib
import json
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FLAGS = ["-std=c++20", "-O3", "-arch=compute_80"]
WORKERS = 2
OURS = {str(p) for folder in ("base", "kernels") for p in (ROOT / folder).rglob("*.*")}


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def digest(files, version):
    """Of what a result depends on; empty where a file is gone."""
    h = hashlib.sha256(f"{version}{FLAGS}".encode())
    for path in map(pathlib.Path, files):
        if not path.exists():
            return ""
        h.update(f"{path}\0".encode() + path.read_bytes())
    return h.hexdigest()


def included(makefile):
    """Our own files in a rule for make."""
    words = makefile.read_text().replace("\\\n", " ").split(":", 1)[1].split()
    return sorted({str(pathlib.Path(w).resolve()) for w in words} & OURS)


def compile_file(nvcc, cache, source, version):
    """PTX and what ptxas says of it; compiled where the file or one that it includes changed."""
    ptx, depends, record = (cache / (source.stem + end) for end in (".ptx", ".d", ".json"))
    if record.exists():
        last = json.loads(record.read_text())
        if last["digest"] == digest(last["files"], version):
            return ptx.read_text(), last["log"]
        record.unlink()
    run([nvcc, *FLAGS, f"-I{ROOT}", "-MD", "-MF", depends, "-ptx", source, "-o", ptx])
    ptxas = pathlib.Path(nvcc).resolve().with_name("ptxas")
    log = run([ptxas, "-arch=sm_80", "-v", ptx, "-o", "/dev/null"])
    files = included(depends)
    record.write_text(json.dumps({"digest": digest(files, version), "files": files, "log": log}))
    return ptx.read_text(), log


def without_parameters(name):
    """The name before the parameter list that ends it."""
    depth = 0
    for i in range(len(name) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(name[i], 0)
        if depth == 0:
            return name[:i] if name[i] == "(" else name
    return name


def readable(mangled):
    """Mangled -> name without return type, parameters and our namespaces."""
    lines = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True,
                           check=True).stdout.split("\n")
    out = {}
    for symbol, name in zip(mangled, lines):
        name = name.replace("(anonymous namespace)::", "").replace("cohort::cuda::", "")
        name = without_parameters(name).removeprefix("void ")
        out[symbol] = name.replace("cohort::", "")
    return out


def bodies(ptx):
    """Mangled name -> PTX of each kernel. A function ends where the next one begins: braces at the
    beginning of a line may be inline assembly's."""
    head = r"^(?:\.(?:visible|weak|extern) )?\.(entry|func)\b"
    starts = [(m.start(), m.group(1)) for m in re.finditer(head, ptx, re.MULTILINE)]
    ends = [start for start, _ in starts[1:]] + [len(ptx)]
    out = {}
    for (start, kind), end in zip(starts, ends):
        if kind == "entry":
            out[re.search(r"\.entry (\w+)", ptx[start:end]).group(1)] = ptx[start:end]
    return out


def properties(log):
    """Mangled name -> (registers, bytes of stack, bytes of spills)."""
    out, name, frame = {}, None, None
    for line in log.splitlines():
        if m := re.search(r"Compiling entry function '(\w+)'", line):
            name = m.group(1)
        elif m := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, "
                            r"(\d+) bytes spill loads", line):
            frame = (int(m.group(1)), int(m.group(2)) + int(m.group(3)))
        elif m := re.search(r"Used (\d+) registers", line):
            out[name] = (int(m.group(1)), *frame)
    return out


def mistakes(rule, patterns, code, registers, stack, spills):
    if stack or spills:
        yield f"{stack} bytes of stack, {spills} bytes of spills"
    if registers > rule["registers"]:
        yield f"{registers} registers, {rule['registers']} allowed"
    for name in rule.get("contains", []):
        if not re.search(patterns[name], code):
            yield f"no {name}"
    for name in rule.get("absent", []):
        if m := re.search(patterns[name], code):
            yield f"a {name}: {m.group(0)}"


def check_file(name, ptx, log, book, used):
    """What is wrong with a file's kernels, and how many they are. used: the rules that served."""
    found, stats = bodies(ptx), properties(log)
    if sorted(found) != sorted(stats):
        return [f"{name}: ptxas saw other kernels than this script"], 0
    names, errors = readable(list(found)), []
    for symbol, code in found.items():
        kernel = names[symbol]
        matching = [r for r in book["rules"] if re.fullmatch(r["kernel"], kernel)]
        if not matching:
            errors.append(f"{name}: {kernel}: no rule in ptx_rules.json")
            continue
        used.add(matching[0]["kernel"])
        found_wrong = mistakes(matching[0], book["patterns"], code, *stats[symbol])
        errors += [f"{name}: {kernel}: {e}" for e in found_wrong]
    return errors, len(found)


def main():
    nvcc, cache = sys.argv[1], pathlib.Path(sys.argv[2])
    all_sources = sorted((ROOT / "kernels/cuda").glob("*.cu"))
    sources = [pathlib.Path(a).resolve() for a in sys.argv[3:]] or all_sources
    cache.mkdir(parents=True, exist_ok=True)
    book = json.loads((HERE / "ptx_rules.json").read_text())
    version = run([nvcc, "--version"])
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        compiled = list(pool.map(lambda s: compile_file(nvcc, cache, s, version), sources))
    errors, used, count = [], set(), 0
    for source, (ptx, log) in zip(sources, compiled):
        wrong, kernels = check_file(source.name, ptx, log, book, used)
        errors += wrong
        count += kernels
    if sources == all_sources:
        errors += [f"ptx_rules.json: no kernel is named {r['kernel']}"
                   for r in book["rules"] if r["kernel"] not in used]
    if count == 0:
        errors.append("no kernels were found")
    print(*errors, f"{count} kernels in {len(sources)} files, {len(errors)} mistakes", sep="\n")
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
