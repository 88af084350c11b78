// SPDX-License-Identifier: Apache-2.0
#include "worker/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <map>

#include "base/isa_option.h"
#include "parallel/shard.h"

namespace cohort {
namespace {

// A sequence may be so long unless --context says more or the model less.
constexpr int kDefaultContext = 8192;

// What the command line holds as text.
struct Texts {
  std::string isa, activations = "auto", kv_dtype = "auto", communicator = "auto", shares,
                   expert_shares;
  int dp = 0, ep = 0;
  std::string device = "cpu", dtype = "auto", graphs = "on";
  std::string overlap = "auto", expert_copies = "auto", pin = "auto";
  std::string log_level = "info";
  uint64_t kv_memory = 0;
};

// least: what each number may be; no text: no shares.
Status read_shares(const char* flag, const std::string& text, int least, std::vector<int>& shares) {
  if (text.empty()) return {};
  auto parsed = parse_shares(text, least);
  if (!parsed.ok()) return parsed.status().annotate(flag);
  shares = std::move(*parsed);
  return {};
}

void declare_model(CLI::App& app, WorkerOptions& o, Texts& texts) {
  app.add_option("--model", o.replica.model,
                 "A .gguf or .safetensors file, or a Hugging Face model folder")
      ->required();
  app.add_option(
         "--activations,--arithmetic", texts.activations,
         "What weights are multiplied by. CPU: int8 if they are quantised (auto), f32 (exact and "
         "slow, keeps the KV cache in f32 too), or bf16, which is as int8 but multiplies bf16 "
         "weights, and keys and values in bf16, by bf16 (fast on AMX, the same bits anywhere); "
         "GPU: --dtype (auto) or int8")
      ->check(CLI::IsMember({"auto", "int8", "f32", "bf16"}))
      ->capture_default_str();
  app.add_option(
         "--kv-dtype", texts.kv_dtype,
         "Type of the KV cache. CPU: auto (f16, or bf16 if bf16 weights are multiplied by bf16), "
         "f16, bf16, f32 or int8 (half of f16's memory, changes results); GPU: that of --dtype "
         "(auto) or f8_e4m3")
      ->check(CLI::IsMember({"auto", "f16", "bf16", "f32", "int8", "f8_e4m3"}))
      ->capture_default_str();
  app.add_option("--kv-memory", texts.kv_memory,
                 "KV cache of each rank, as in 512M or 4G; 0: what --max-batch sequences of full "
                 "length need, up to a quarter of the host's memory or what is free on a GPU")
      ->transform(CLI::AsSizeValue(false));
  app.add_option(
         "--weight-cache", o.replica.weight_cache,
         "CPU: where packed weights are kept for the next start: a folder, auto (beside the "
         "model, or in the cache folder where that cannot be written) or off")
      ->capture_default_str();
  app.add_option("--context", o.replica.limits.max_context,
                 "Positions of a sequence at most; 0: the model's, up to 8192")
      ->check(CLI::Range(0, 1 << 24));
  app.add_option("--max-batch", o.replica.limits.max_slots, "Sequences that run at once")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--chunk", o.replica.limits.max_rows,
                 "Tokens of one step: longer prompts are cut into chunks")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app.add_option("--prefill-slowdown", o.prefill_slowdown,
                 "How many times longer prompts may make a step in which others generate, though "
                 "16 of their tokens always go along: more answers sooner, but less evenly")
      ->check(CLI::Range(1.0, 1000.0))
      ->capture_default_str();
}

void declare_shape(CLI::App& app, WorkerOptions& o, Texts& texts) {
  app.add_option("--tp", o.replica.layout.tp, "Tensor-parallel ranks: each holds a part of layers")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--pp", o.replica.layout.pp, "Pipeline stages: each holds some of the layers")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--dp", texts.dp,
                 "Groups of --tp ranks per stage, each with sequences of its own, for models with "
                 "experts (data-parallel attention); 0: what --ep asks for, or 1")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--ep", texts.ep,
                 "Ranks of a stage over which the experts of a layer are spread: --tp times --dp; "
                 "0: follows from them")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--expert-shares", texts.expert_shares,
                 "Weights of a stage's ranks for experts, as in 2:1:1:0; experts follow them");
  app.add_option("--expert-copies", texts.expert_copies,
                 "With --dp: copies of experts that many tokens choose, on ranks that have less to "
                 "do: auto (as the load asks for) or off")
      ->check(CLI::IsMember({"auto", "off"}))
      ->capture_default_str();
  app.add_option("--shares", texts.shares,
                 "Weights of the tensor-parallel ranks, as in 2:1; shards follow them");
  app.add_option("--threads", o.replica.threads, "Threads of this rank")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option(
         "--pin", texts.pin,
         "CPU: auto (each thread stays on a processor of its own where there are enough) or "
         "off")
      ->check(CLI::IsMember({"auto", "off"}))
      ->capture_default_str();
  app.add_option(
      "--isa", texts.isa,
      "Instruction set of the kernels (portable, avx2, avx512, amx; default: the best that "
      "the processor has); all give the same bits");
  app.add_flag("--compress-activations", o.replica.compress_activations,
               "Send int8 between pipeline stages: a quarter of the bytes, for slow links. Changes "
               "results");
  app.add_option("--overlap", texts.overlap,
                 "Cut steps in two, one half computing while the other communicates: auto (where "
                 "it is predicted to gain), on or off")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str();
  app.add_option("--communicator", texts.communicator, "How ranks talk: auto, shm or mpi")
      ->check(CLI::IsMember({"auto", "shm", "mpi"}))
      ->capture_default_str();
  app.add_option("--rank-host", o.rank_host,
                 "Name or address of the leader's host that all ranks can reach; by default the "
                 "loopback if they share a host, else its first address");
}

void declare_gpu(CLI::App& app, WorkerOptions& o, Texts& texts) {
  app.add_option("--device", texts.device,
                 "cpu, cuda (ranks of a host take its GPUs in order) or cuda:N (GPU N)")
      ->capture_default_str();
  app.add_option(
         "--dtype", texts.dtype,
         "What a GPU computes in: auto (bf16 or f16, as the checkpoint is), bf16, f16 or f32")
      ->check(CLI::IsMember({"auto", "bf16", "f16", "f32"}))
      ->capture_default_str();
  app.add_flag(
      "--deterministic", o.replica.gpu.deterministic,
      "GPU: every sum in one order for any batch and layout, as always on the CPU; slower");
  app.add_option("--graphs", texts.graphs, "GPU: capture decode steps and replay them")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
}

void declare_service(CLI::App& app, WorkerOptions& o, Texts& texts) {
  app.add_option("--coordinator", o.coordinator, "Where the coordinator takes leaders, HOST:PORT")
      ->required();
  app.add_option("--name", o.name, "Name of this replica, unique among those of the coordinator")
      ->capture_default_str();
  app.add_option("--log-level", texts.log_level, "debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
  app.add_option("--trace", o.replica.trace.path,
                 "Write what each rank did when to FILE.<rank>.json, for `cohort trace`");
  app.add_option("--trace-steps", o.replica.trace.steps,
                 "Write the trace after so many steps; 0: at the end")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--record-plans", o.record_plans,
                 "Write every step plan and result to this file, for replay");
}

// "cpu", "cuda", "cuda:2".
Status parse_device(const std::string& text, GpuOptions& gpu) {
  if (text == "cpu") return {};
  gpu.device = DeviceKind::cuda;
  if (text == "cuda") return {};
  const char *begin = text.data() + 5, *end = text.data() + text.size();
  const bool numbered = text.starts_with("cuda:") &&
                        std::from_chars(begin, end, gpu.ordinal).ptr == end && begin != end;
  if (numbered && gpu.ordinal >= 0) return {};
  return invalid_argument("--device must be cpu, cuda or cuda:N, not " + text);
}

Status interpret_device(const Texts& texts, ReplicaOptions& replica) {
  COHORT_RETURN_IF_ERROR(parse_device(texts.device, replica.gpu));
  replica.gpu.graphs = texts.graphs == "on";
  const bool gpu = replica.gpu.device == DeviceKind::cuda;
  replica.gpu.choose_dtype = texts.dtype == "auto";
  if (!replica.gpu.choose_dtype) replica.gpu.dtype = *parse_dtype(texts.dtype);
  replica.choose_kv_dtype = texts.kv_dtype == "auto";
  if (texts.kv_dtype != "auto")
    replica.kv_dtype = texts.kv_dtype == "int8" ? DType::i8 : *parse_dtype(texts.kv_dtype);
  if (gpu && (texts.activations == "f32" || texts.activations == "bf16"))
    return invalid_argument(concat("on a GPU --dtype ", texts.activations,
                                   " takes the place of --activations ", texts.activations));
  const std::map<std::string, ActivationMode> modes = {
      {"auto", gpu ? ActivationMode::native : ActivationMode::int8},
      {"int8", ActivationMode::int8},
      {"f32", ActivationMode::f32},
      {"bf16", ActivationMode::bf16}};
  replica.activations = modes.at(texts.activations);
  return {};
}

// --tp, --dp and --ep are two numbers too many to choose freely.
Status interpret_experts(const Texts& texts, Layout& layout) {
  layout.dp = texts.dp > 0 ? texts.dp : std::max(1, texts.ep / layout.tp);
  if (texts.ep > 0 && texts.ep != layout.ep())
    return invalid_argument(concat("--ep ", texts.ep, " is not possible with --tp ", layout.tp,
                                   texts.dp > 0 ? concat(" and --dp ", texts.dp) : "",
                                   ": experts are spread over all ranks of a stage, tp times dp"));
  return read_shares("--expert-shares", texts.expert_shares, 0, layout.expert_shares);
}

Status interpret(const Texts& texts, WorkerOptions& o) {
  ReplicaOptions& replica = o.replica;
  COHORT_ASSIGN_OR_RETURN(replica.isa, choose_isa(texts.isa));
  COHORT_RETURN_IF_ERROR(interpret_device(texts, replica));
  if (texts.kv_memory > uint64_t{1} << 50)
    return invalid_argument("--kv-memory is more than any host has");
  replica.kv_memory = static_cast<int64_t>(texts.kv_memory);
  replica.fit_context = replica.limits.max_context == 0;
  if (replica.fit_context) replica.limits.max_context = kDefaultContext;
  COHORT_RETURN_IF_ERROR(interpret_experts(texts, replica.layout));
  COHORT_RETURN_IF_ERROR(read_shares("--shares", texts.shares, 1, replica.layout.shares));
  if (!replica.layout.shares.empty() && int(replica.layout.shares.size()) != replica.layout.tp)
    return invalid_argument(concat("--shares has ", replica.layout.shares.size(),
                                   " numbers, but --tp is ", replica.layout.tp));
  const std::map<std::string, CommunicatorKind> kinds = {{"auto", CommunicatorKind::automatic},
                                                         {"shm", CommunicatorKind::shm},
                                                         {"mpi", CommunicatorKind::mpi}};
  o.communicator = kinds.at(texts.communicator);
  replica.pin = texts.pin == "auto";
  replica.overlap = texts.overlap == "on"    ? Overlap::on
                    : texts.overlap == "off" ? Overlap::off
                                             : Overlap::automatic;
  replica.trace.process = o.name;
  o.expert_copies = texts.expert_copies == "auto";
  o.log_level = parse_log_level(texts.log_level);
  if (o.coordinator.rfind(':') == std::string::npos)
    return invalid_argument("--coordinator must be HOST:PORT, not " + o.coordinator);
  return Status::ok_status();
}

}  // namespace

std::variant<WorkerOptions, int> parse_worker_options(int argc, char** argv) {
  CLI::App app(
      "One rank of a replica; started by mpirun, once per rank.\n"
      "Exit status: 0 done, 64 what was asked for cannot be, 70 a rank failed, 71 the leader was\n"
      "lost.");
  WorkerOptions options;
  options.replica.limits.max_context = 0;
  Texts texts;
  declare_model(app, options, texts);
  declare_shape(app, options, texts);
  declare_gpu(app, options, texts);
  declare_service(app, options, texts);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  if (const Status status = interpret(texts, options); !status.ok()) {
    log_error(status.message());
    return kExitUsage;
  }
  return options;
}

}  // namespace cohort
