// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <thread>

#include "base/isa_option.h"
#include "base/log.h"
#include "tools/bench/kernel_bench.h"
#include "tools/bench/model_bench.h"
#include "tools/bench_report.h"
#include "tools/model_store.h"

namespace cohort {
namespace {

struct KernelTexts {
  bench::KernelOptions options;
  std::string isa;
  bool as_json = false;
};

struct ModelTexts {
  bench::ModelOptions options;
  std::string isa, activations = "auto", kv_dtype = "auto";
  bool as_json = false;
};

int all_processors(int ranks) {
  return std::max(1, int(std::thread::hardware_concurrency()) / ranks);
}

int fail(const char* command, const Status& why) {
  std::cerr << "cohort bench " << command << ": " << why.message() << '\n';
  return 1;
}

int run_kernels(KernelTexts texts) {
  const Result<Isa> isa = choose_isa(texts.isa);
  if (!isa.ok()) return fail("kernels", isa.status());
  texts.options.isa = *isa;
  if (texts.options.threads == 0) texts.options.threads = all_processors(1);
  bench::KernelReportWriter writer(std::cout, texts.as_json);
  const Status done = bench::bench_kernels(
      texts.options, [&](const MachineLimits& machine) { writer.begin(machine); },
      [&](const bench::KernelResult& result) { writer.add(result); });
  if (!done.ok()) return fail("kernels", done);
  writer.finish();
  return 0;
}

Status interpret(ModelTexts& texts) {
  bench::ModelOptions& o = texts.options;
  COHORT_ASSIGN_OR_RETURN(o.isa, choose_isa(texts.isa));
  COHORT_ASSIGN_OR_RETURN(o.model, resolve_model(o.model));
  if (o.threads == 0) o.threads = all_processors(o.tp);
  const std::map<std::string, ActivationMode> modes = {{"auto", ActivationMode::int8},
                                                       {"int8", ActivationMode::int8},
                                                       {"f32", ActivationMode::f32},
                                                       {"bf16", ActivationMode::bf16}};
  o.activations = modes.at(texts.activations);
  o.choose_kv_dtype = texts.kv_dtype == "auto";
  if (!o.choose_kv_dtype)
    o.kv_dtype = texts.kv_dtype == "int8" ? DType::i8 : *parse_dtype(texts.kv_dtype);
  return {};
}

int run_model(ModelTexts texts) {
  const Status understood = interpret(texts);
  if (!understood.ok()) return fail("model", understood);
  configure_log("bench", LogLevel::warning);
  const bench::ModelOptions& o = texts.options;
  bench::ModelReportWriter writer(std::cout, o, texts.as_json);
  const auto report =
      bench::bench_model(o, [&](const bench::ModelReport& so_far) { writer.show(so_far); });
  if (!report.ok()) return fail("model", report.status());
  writer.finish(*report);
  return 0;
}

void declare_kernels(CLI::App& bench, int& exit_code) {
  CLI::App& command =
      *bench.add_subcommand("kernels", "Each kernel of the CPU, beside what the machine allows");
  const auto texts = std::make_shared<KernelTexts>();
  bench::KernelOptions& o = texts->options;
  command.add_option("--threads", o.threads, "Threads; by default all processors")
      ->check(CLI::Range(1, 1024));
  command.add_option("--isa", texts->isa,
                     "Instruction set (portable, avx2, avx512, amx); default: as a worker's");
  command.add_option("--filter", o.filter,
                     "Only kernels in whose names this regular expression is found, as in "
                     "'matmul q4_1 1B'");
  command.add_option("--seconds", o.seconds, "About how long it may take, all together")
      ->check(CLI::Range(0.01, 1e5))
      ->capture_default_str();
  command.add_flag("--json", texts->as_json, "as JSON");
  o.threads = 0;
  command.callback([texts, &exit_code] { exit_code = run_kernels(*texts); });
}

void declare_sizes(CLI::App& command, bench::ModelOptions& o) {
  command
      .add_option("--prefill", o.prefill,
                  "Tokens of the prompts, as in 128,512; 0 alone: none; by default 128,512,2048 as "
                  "far as the model's context goes")
      ->delimiter(',')
      ->check(CLI::Range(0, 1 << 24));
  command
      .add_option("--decode", o.decode,
                  "Sequences that decode at once, as in 1,8; 0 alone: none; by default "
                  "1,2,4,8,16,32")
      ->delimiter(',')
      ->check(CLI::Range(0, 4096));
  command.add_option("--context", o.context, "Positions of each sequence before it decodes")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  command.add_option("--tokens", o.tokens, "Tokens of each sequence in a repetition")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command.add_option("--repetitions", o.repetitions, "Of each measurement, after one to warm up")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command.add_option("--chunk", o.chunk, "Tokens of one step, as the worker's")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
}

void declare_arithmetic(CLI::App& command, ModelTexts& texts) {
  command.add_option("--isa", texts.isa,
                     "Instruction set (portable, avx2, avx512, amx); default: as a worker's");
  command
      .add_option("--activations,--arithmetic", texts.activations,
                  "What weights are multiplied by, as the worker's: int8 (auto), f32 or bf16")
      ->check(CLI::IsMember({"auto", "int8", "f32", "bf16"}))
      ->capture_default_str();
  command
      .add_option("--kv-dtype", texts.kv_dtype,
                  "Type of the KV cache: as the worker's (auto), f16, bf16, f32 or int8")
      ->check(CLI::IsMember({"auto", "f16", "bf16", "f32", "int8"}))
      ->capture_default_str();
  command
      .add_option("--weight-cache", texts.options.weight_cache,
                  "Where packed weights are kept, as the worker's: a folder, auto or off")
      ->capture_default_str();
}

void use_default_sizes(bench::ModelOptions& o) {
  const auto none = [](const std::vector<int32_t>& sizes) {
    return sizes == std::vector<int32_t>{0};
  };
  o.default_prefill = o.prefill.empty();
  if (o.prefill.empty()) o.prefill = {128, 512, 2048};
  if (o.decode.empty()) o.decode = {1, 2, 4, 8, 16, 32};
  if (none(o.prefill)) o.prefill.clear();
  if (none(o.decode)) o.decode.clear();
}

void declare_model(CLI::App& bench, int& exit_code) {
  CLI::App& command = *bench.add_subcommand(
      "model",
      "A model in this process, without network: tokens per second of prompts by themselves, and "
      "of sequences that decode together");
  const auto texts = std::make_shared<ModelTexts>();
  bench::ModelOptions& o = texts->options;
  command
      .add_option("-m,--model", o.model,
                  "A .gguf or .safetensors file, a Hugging Face model folder, or a known name")
      ->required();
  o.threads = 0;
  command
      .add_option("--threads", o.threads,
                  "Threads of each rank; by default all processors divided by the ranks")
      ->check(CLI::Range(1, 1024));
  command.add_option("--tp", o.tp, "Tensor-parallel ranks, as threads of this process")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  declare_sizes(command, o);
  declare_arithmetic(command, *texts);
  command.add_flag("--json", texts->as_json, "as JSON");
  command.callback([texts, &exit_code] {
    use_default_sizes(texts->options);
    exit_code = run_model(*texts);
  });
}

}  // namespace

void add_bench_command(CLI::App& app, int& exit_code) {
  CLI::App& bench = *app.add_subcommand(
      "bench", "Measure kernels or a whole model on this machine, beside what the machine allows");
  bench.require_subcommand(1);
  declare_kernels(bench, exit_code);
  declare_model(bench, exit_code);
}

}  // namespace cohort
