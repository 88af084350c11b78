// SPDX-License-Identifier: Apache-2.0
#include "tools/up_options.h"

#include <CLI/CLI.hpp>

namespace cohort {
namespace {

void declare_shape(CLI::App& app, UpOptions& o) {
  app.add_option("--model", o.model,
                 "A .gguf or .safetensors file, a Hugging Face model folder, or a known name")
      ->capture_default_str();
  app.add_option("--tp", o.tp,
                 "Tensor-parallel ranks of a replica: each holds a part of every layer")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--dp", o.dp,
                 "Groups of --tp ranks per stage, each with sequences of its own, for models with "
                 "experts (data-parallel attention); 0: what --ep asks for, or 1")
      ->check(CLI::Range(0, 1024));
  app.add_option("--ep", o.ep,
                 "Ranks of a stage over which the experts of a layer are spread: --tp times --dp; "
                 "0: follows from them")
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--pp", o.pp, "Pipeline stages of a replica: each holds some of the layers")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--replicas", o.replicas, "Copies of the model, each under an mpirun of its own")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--shares", o.shares,
                 "Weights of the tensor-parallel ranks, as in 2:1; shards follow them");
  app.add_option("--expert-shares", o.expert_shares,
                 "Weights of a stage's ranks for experts, as in 2:1:1:0; experts follow them");
  app.add_option(
         "--expert-copies", o.expert_copies,
         "Copies of hot experts on further ranks: auto (from measured load) or off. Changes no "
         "result")
      ->check(CLI::IsMember({"auto", "off"}))
      ->capture_default_str();
  app.add_flag("--compress-activations", o.compress_activations,
               "Send int8 between pipeline stages: a quarter of the bytes, for slow links. Changes "
               "results");
  app.add_option("--overlap", o.overlap,
                 "Cut steps in two, one half computing while the other communicates: auto (where "
                 "it is predicted to gain), on or off")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str();
  app.add_option("--threads", o.threads, "Threads of each rank; 0: the cores divided by all ranks")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option(
         "--pin", o.pin,
         "CPU: auto (each thread stays on a processor of its own where there are enough) or "
         "off")
      ->check(CLI::IsMember({"auto", "off"}))
      ->capture_default_str();
  app.add_option("--communicator", o.communicator, "How ranks talk: auto, shm or mpi")
      ->check(CLI::IsMember({"auto", "shm", "mpi"}))
      ->capture_default_str();
}

void declare_serving(CLI::App& app, UpOptions& o) {
  app.add_option("--http", o.http, "Where the OpenAI API listens, HOST:PORT")
      ->capture_default_str();
  app.add_option("--grpc", o.grpc, "Where the gRPC API listens, HOST:PORT")->capture_default_str();
  app.add_option("--served-model-name", o.served_model_name, "The name that clients see");
  app.add_option("--context", o.context,
                 "Positions of a sequence at most; 0: the model's, up to 8192")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--kv-memory", o.kv_memory, "KV cache of each rank, as in 512M or 4G");
  app.add_option(
         "--weight-cache", o.weight_cache,
         "CPU: where packed weights are kept for the next start: a folder, auto (beside the "
         "model, or in the cache folder where that cannot be written) or off (default)")
      ->capture_default_str();
  app.add_option("--max-batch", o.max_batch, "Sequences that run at once in a replica");
  app.add_option("--chunk", o.chunk, "Tokens of one step: longer prompts are cut into chunks");
  app.add_option("--prefill-slowdown", o.prefill_slowdown,
                 "How many times longer prompts may make a step in which others generate (1.5), "
                 "though 16 of their tokens always go along: more answers sooner, but less evenly")
      ->check(CLI::Range(1.0, 1000.0));
  app.add_option("--coordinator-args", o.coordinator_arguments,
                 "Further flags for the coordinator (see cohort-coordinator --help)")
      ->multi_option_policy(CLI::MultiOptionPolicy::Throw);
}

void declare_arithmetic(CLI::App& app, UpOptions& o) {
  app.add_option(
         "--activations,--arithmetic", o.activations,
         "What weights are multiplied by. CPU: int8 if they are quantised (auto), f32 (exact and "
         "slow, keeps the KV cache in f32 too), or bf16, which is as int8 but multiplies bf16 "
         "weights, and keys and values in bf16, by bf16 (fast on AMX, the same bits anywhere); "
         "GPU: --dtype (auto) or int8")
      ->check(CLI::IsMember({"auto", "int8", "f32", "bf16"}))
      ->capture_default_str();
  app.add_option(
         "--kv-dtype", o.kv_dtype,
         "Type of the KV cache. CPU: auto (f16, or bf16 if bf16 weights are multiplied by bf16), "
         "f16, bf16, f32 or int8 (half of f16's memory, changes results); GPU: that of --dtype "
         "(auto) or f8_e4m3")
      ->check(CLI::IsMember({"auto", "f16", "bf16", "f32", "int8", "f8_e4m3"}))
      ->capture_default_str();
  app.add_option(
      "--isa", o.isa,
      "Instruction set of the kernels (portable, avx2, avx512, amx; default: the best that "
      "the processor has); all give the same bits");
  app.add_option("--log-level", o.log_level, "debug, info, warning or error")
      ->capture_default_str();
}

void declare_hosts(CLI::App& app, UpOptions& o) {
  const std::string group = "Several hosts";
  app.add_option("--hosts", o.hosts,
                 "Where the ranks of every replica run, in order: a,b or, with the ranks of each, "
                 "a:2,b:1; a/b,c: replica 0 on a, replica 1 on b and c. Programs and model must "
                 "lie under the same paths on all hosts; default: this machine")
      ->group(group);
  app.add_option("--rsh-agent", o.rsh_agent,
                 "Starts a command on another host: 'AGENT HOST COMMAND', without asking anything")
      ->group(group)
      ->capture_default_str();
  app.add_option("--network", o.network,
                 "What ranks talk over: a network such as 10.0.0.0/24, or an interface that all "
                 "hosts have; default: that of this machine which leads to the first other host")
      ->group(group);
  app.add_option("--listen", o.listen,
                 "Address of this machine where replicas connect; default: that in --network")
      ->group(group);
  app.add_option("--rank-host", o.rank_host,
                 "Name or address of the replica's first host that its others can reach; default: "
                 "what it resolves to, or this machine's address in --network")
      ->group(group);
}

void declare_gpu(CLI::App& app, UpOptions& o) {
  app.add_option("--device", o.device,
                 "cpu, cuda (each rank a GPU of its own) or cuda:N (all ranks on GPU N)")
      ->capture_default_str();
  app.add_option(
         "--dtype", o.dtype,
         "What a GPU computes in: auto (bf16 or f16, as the checkpoint is), bf16, f16 or f32")
      ->check(CLI::IsMember({"auto", "bf16", "f16", "f32"}))
      ->capture_default_str();
  app.add_flag(
      "--deterministic", o.deterministic,
      "GPU: every sum in one order for any batch and layout, as always on the CPU; slower");
  app.add_option("--graphs", o.graphs, "GPU: capture decode steps and replay them")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
}

}  // namespace

void declare_up_options(CLI::App& app, UpOptions& options) {
  // So that a script's own defaults can be overridden by appending.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  declare_shape(app, options);
  declare_serving(app, options);
  declare_arithmetic(app, options);
  declare_gpu(app, options);
  declare_hosts(app, options);
}

}  // namespace cohort
