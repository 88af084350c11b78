#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cohort bench, doctor and --version: what they print, and what they refuse. No figure is judged."""
import json
import os
import subprocess
import sys
import unittest

COHORT = os.path.join(os.environ["COHORT_BIN"], "cohort")
MODELS = "tests/data/tiny_models"
BOUNDS = {"bandwidth", "cache", "int8", "tiles", "fma"}


def run(*arguments, **variables):
    environment = {k: v for k, v in os.environ.items() if k != "COHORT_ISA"}
    return subprocess.run([COHORT, *arguments], capture_output=True, text=True, timeout=100,
                          env={**environment, **variables})


def json_of(*arguments, **variables):
    result = run(*arguments, **variables)
    if result.returncode != 0:
        raise AssertionError(f"{arguments}: {result.stdout}{result.stderr}")
    return json.loads(result.stdout)


class BenchModel(unittest.TestCase):
    def check(self, report, sizes):
        self.assertEqual([(r["kind"], r["size"]) for r in report["results"]], sizes)
        for result in report["results"]:
            self.assertGreater(result["tokens_per_second"], 0)
            self.assertGreater(result["fraction_of_bound"], 0)
            self.assertIn(result["bound"], BOUNDS)
            self.assertEqual(result["bound"] == "bandwidth", result["kind"] == "decode")
            self.assertLessEqual(result["min"], result["tokens_per_second"])
            self.assertGreaterEqual(result["max"], result["tokens_per_second"])
            self.assertEqual(result["repetitions"], 2)
        self.assertGreater(report["load_seconds"], 0)
        self.assertGreater(report["model"]["weight_bytes"], 0)
        self.assertGreater(report["machine"]["memory_bytes_per_second"]["all"], 0)

    def test_two_ranks(self):
        report = json_of("bench", "model", "--model", f"{MODELS}/llama3", "--threads", "1", "--tp", "2",
                         "--prefill", "16,40", "--decode", "1,3", "--context", "20", "--tokens", "4",
                         "--repetitions", "2", "--chunk", "32", "--isa", "portable", "--json")
        self.check(report, [("prefill", 16), ("prefill", 40), ("decode", 1), ("decode", 3)])
        self.assertEqual((report["isa"], report["threads"], report["tp"]), ("portable", 1, 2))
        decode = report["results"][-1]
        self.assertEqual((decode["context"], decode["tokens"]), (21, 12))

    def test_experts_and_latent_attention_and_the_variable(self):
        report = json_of("bench", "model", f"--model={MODELS}/deepseek_v3", "--threads=1", "--prefill=8",
                         "--decode=2", "--context=8", "--tokens=2", "--repetitions=2", "--json",
                         COHORT_ISA="portable")
        self.check(report, [("prefill", 8), ("decode", 2)])
        self.assertEqual(report["isa"], "portable")

    def test_for_people(self):
        result = run("bench", "model", "--model", f"{MODELS}/llama3", "--threads", "1", "--prefill", "0",
                     "--decode", "2", "--context", "4", "--tokens", "2", "--repetitions", "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"(?m)^decode +2 +5 ")
        self.assertNotIn("prefill ", result.stdout)

    def test_refusals(self):
        model = ["--model", f"{MODELS}/llama3", "--threads", "1"]
        for arguments, expected in [
                (["--model", "no/such/model"], "no file or folder"),
                (model + ["--prefill", "5000"], "--prefill 5000: the model has 512 positions"),
                (model + ["--context", "500", "--decode", "1"], "positions; the model has 512"),
                (model + ["--decode", "300"], "--decode 300 is more than one step of --chunk 256"),
                (model + ["--prefill", "0", "--decode", "0"], "nothing is left to measure"),
                (model + ["--tp", "5", "--decode", "1"], "tensor parallelism of 5 is not possible"),
                (model + ["--isa", "mmx"], "--isa mmx: known are"),
                (model + ["--kv-dtype", "f64"], "f64"),
                (["--threads", "1"], "--model is required")]:
            result = run("bench", "model", *arguments)
            self.assertEqual(result.returncode, 1, arguments)
            self.assertIn(expected, result.stderr + result.stdout, arguments)


class BenchKernels(unittest.TestCase):
    def test_some(self):
        names = ["matmul q4_1 135M rows 1", "attention decode 135M sequences 1 keys 128",
                 "attention prefill bf16 135M rows 256 keys 256", "rms_norm 1B rows 1",
                 "sample greedy vocab 49152", "all_reduce 2 ranks 135M rows 1"]
        report = json_of("bench", "kernels", "--threads", "1", "--json", "--seconds", "0.5",
                         "--filter", "^(" + "|".join(names) + ")$")
        self.assertEqual([r["name"] for r in report["results"]], names)
        for result in report["results"]:
            self.assertGreater(result["seconds"], 0)
            self.assertGreater(result["bytes_per_second"], 0)
            self.assertGreater(result["fraction_of_bound"], 0)
            self.assertIn(result["bound"], BOUNDS)

    def test_refusals(self):
        for arguments, expected in [(["--filter", "["], "not a regular expression"),
                                    (["--filter", "nothing so"], "no kernel's name matches"),
                                    (["--threads", "0"], "--threads")]:
            result = run("bench", "kernels", *arguments)
            self.assertEqual(result.returncode, 1, arguments)
            self.assertIn(expected, result.stderr + result.stdout)


class Doctor(unittest.TestCase):
    def test_findings(self):
        result = run("doctor", "--json")
        findings = json.loads(result.stdout)["findings"]
        self.assertEqual(result.returncode, int(any(f["grade"] == "problem" for f in findings)))
        subjects = {f["subject"] for f in findings}
        self.assertLessEqual({"instructions", "processors", "memory", "huge pages", "gpu", "mpi", "program",
                              "shared memory", "open files"}, subjects)
        self.assertLessEqual({f["grade"] for f in findings}, {"ok", "note", "problem"})

    def test_for_people(self):
        result = run("doctor", COHORT_ISA="portable")
        self.assertRegex(result.stdout, r"(?m)^(ok|note) +instructions .*ranks use portable, as COHORT_ISA says")

    def test_an_instruction_set_that_is_not_there_is_a_problem(self):
        result = run("doctor", COHORT_ISA="mmx")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout, r"(?m)^problem +instructions .*COHORT_ISA mmx")

    def test_no_mpi_is_a_problem(self):
        result = run("doctor", PATH="/nowhere")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout, r"(?m)^problem +mpi .*no mpirun on PATH")

    def test_probe(self):
        report = json.loads(run("doctor", "--probe", "--threads", "1", "--json").stdout)
        self.assertGreater(report["machine"]["fma_operations_per_second"]["one"], 0)
        self.assertIn("portable", [p["isa"] for p in report["peaks"]])


class Version(unittest.TestCase):
    def test_verbose_names_the_instruction_set(self):
        self.assertRegex(run("--version").stdout, r"^\d+\.\d+\.\d+\n$")
        self.assertIn("instruction set: portable", run("--version", "--verbose", COHORT_ISA="portable").stdout)


if __name__ == "__main__":
    sys.exit(unittest.main())
