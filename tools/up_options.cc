// SPDX-License-Identifier: Apache-2.0
#include "tools/up_options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <thread>

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
  app.add_option("--overlap", o.overlap,
                 "Cut steps in two, one half computing while the other communicates: auto (where "
                 "it is predicted to gain), on or off")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str();
  app.add_option("--threads", o.threads, "Threads of each rank; 0: the cores divided by all ranks")
      ->check(CLI::Range(0, 1024))
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
  app.add_option("--max-batch", o.max_batch, "Sequences that run at once in a replica");
  app.add_option("--chunk", o.chunk, "Tokens of one step: longer prompts are cut into chunks");
  app.add_option("--coordinator-args", o.coordinator_arguments,
                 "Further flags for the coordinator (see cohort-coordinator --help)")
      ->multi_option_policy(CLI::MultiOptionPolicy::Throw);
}

void declare_arithmetic(CLI::App& app, UpOptions& o) {
  app.add_option(
         "--activations", o.activations,
         "What quantised weights are multiplied by. CPU: int8 (auto) or f32 (exact and slow, "
         "keeps the KV cache in f32 too); GPU: --dtype (auto) or int8")
      ->check(CLI::IsMember({"auto", "int8", "f32"}))
      ->capture_default_str();
  app.add_option(
         "--kv-dtype", o.kv_dtype,
         "Type of the KV cache. CPU: f16 (auto), bf16 or f32; GPU: that of --dtype (auto) or "
         "f8_e4m3")
      ->check(CLI::IsMember({"auto", "f16", "bf16", "f32", "f8_e4m3"}))
      ->capture_default_str();
  app.add_option("--isa", o.isa,
                 "Instruction set of the kernels (portable, avx2); all give the same bits");
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

// Replicas of one host take its GPUs one after the other: those that the caller left visible, or
// all.
std::string visible_gpus(const ReplicaHosts& replica) {
  std::vector<std::string> gpus;
  if (const char* given = std::getenv("CUDA_VISIBLE_DEVICES"))
    for (const std::string& gpu : CLI::detail::split(given, ',')) gpus.push_back(gpu);
  std::string visible;
  for (int i = replica.first_gpu; i < replica.first_gpu + replica.gpus; i++) {
    if (!gpus.empty() && size_t(i) >= gpus.size()) break;  // the worker says that there are too few
    visible += (visible.empty() ? "" : ",") + (gpus.empty() ? std::to_string(i) : gpus[size_t(i)]);
  }
  return visible;
}

// Hosts are taken to have as many cores as this machine.
int threads_per_rank(const UpOptions& o, const HostPlan& plan) {
  if (o.threads > 0) return o.threads;
  const int cores = int(std::max(1u, std::thread::hardware_concurrency()));
  return std::max(1, cores / plan.most_ranks);
}

std::vector<std::string> mpirun_arguments(int ranks) {
  // Ranks share cores politely and are not bound: the worker places its own threads. The
  // single-copy mechanism of shared memory needs ptrace rights that containers do not give.
  return {"mpirun",
          "-np",
          std::to_string(ranks),
          "--bind-to",
          "none",
          "--oversubscribe",
          "--mca",
          "mpi_yield_when_idle",
          "1",
          "--mca",
          "pml",
          "ob1",
          "--mca",
          "btl",
          "self,vader,tcp",
          "--mca",
          "btl_vader_single_copy_mechanism",
          "none",
          "--mca",
          "orte_abort_on_non_zero_status",
          "1"};
}

// Of our environment, what may change what a rank does: logins on other hosts bring little.
std::vector<std::string> forwarded_variables() {
  std::vector<std::string> arguments;
  for (char** entry = environ; *entry != nullptr; entry++) {
    const std::string_view text = *entry;
    for (const char* prefix : {"COHORT_", "LD_LIBRARY_PATH=", "NCCL_", "UCX_"})
      if (text.starts_with(prefix)) {
        arguments.push_back("-x");
        arguments.emplace_back(text.substr(0, text.find('=')));
      }
  }
  return arguments;
}

// keeper: see host_daemon.h. Every daemon is started from here (no tree), so hosts need not be able
// to log in to each other.
std::vector<std::string> hosts_arguments(const UpOptions& o, const std::string& folder,
                                         const ReplicaHosts& replica, const std::string& keeper) {
  // One host: no remote shell is looked for, so none need be installed.
  if (replica.others.empty()) return {"--mca", "plm", "isolated"};
  std::vector<std::string> arguments = {
      "--host",
      to_string(replica.hosts),
      "--map-by",
      "slot",
      "--mca",
      "plm",
      "rsh",
      "--mca",
      "plm_rsh_agent",
      o.rsh_agent,
      "--mca",
      "plm_rsh_no_tree_spawn",
      "1",
      "--mca",
      "orte_launch_agent",
      folder + "/cohort host-daemon --keeper " + keeper + " -- orted"};
  if (!replica.network.empty())
    for (const char* parameter : {"oob_tcp_if_include", "btl_tcp_if_include"})
      arguments.insert(arguments.end(), {"--mca", parameter, replica.network});
  if (o.device == "cuda") arguments.insert(arguments.end(), {"-x", "CUDA_VISIBLE_DEVICES"});
  const auto variables = forwarded_variables();
  arguments.insert(arguments.end(), variables.begin(), variables.end());
  return arguments;
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

Command coordinator_command(const UpOptions& o, const UpPaths& paths, const std::string& listen) {
  Command command;
  command.arguments = {paths.folder + "/cohort-coordinator",
                       "--model",
                       paths.model,
                       "--http",
                       o.http,
                       "--grpc",
                       o.grpc,
                       "--session",
                       listen + ":0",
                       "--log-level",
                       o.log_level};
  if (!o.served_model_name.empty())
    command.arguments.insert(command.arguments.end(), {"--served-model-name", o.served_model_name});
  command.arguments.insert(command.arguments.end(), o.coordinator_arguments.begin(),
                           o.coordinator_arguments.end());
  return command;
}

Command replica_command(const UpOptions& o, const UpPaths& paths, const HostPlan& plan,
                        const std::string& session, const std::string& keeper, int replica) {
  const ReplicaHosts& hosts = plan.replicas[size_t(replica)];
  Command command;
  command.arguments = mpirun_arguments(o.ranks());
  auto add = [&](const std::vector<std::string>& more) {
    command.arguments.insert(command.arguments.end(), more.begin(), more.end());
  };
  add(hosts_arguments(o, paths.folder, hosts, keeper));
  add({paths.folder + "/cohort-worker",
       "--model",
       paths.model,
       "--name",
       "replica-" + std::to_string(replica),
       "--coordinator",
       session,
       "--tp",
       std::to_string(o.tp),
       "--pp",
       std::to_string(o.pp),
       "--threads",
       std::to_string(threads_per_rank(o, plan)),
       "--activations",
       o.activations,
       "--kv-dtype",
       o.kv_dtype,
       "--communicator",
       o.communicator,
       "--log-level",
       o.log_level});
  if (o.dp > 0) add({"--dp", std::to_string(o.dp)});
  if (o.ep > 0) add({"--ep", std::to_string(o.ep)});
  if (!o.expert_shares.empty()) add({"--expert-shares", o.expert_shares});
  if (o.overlap != "auto") add({"--overlap", o.overlap});
  if (!hosts.rank_host.empty()) add({"--rank-host", hosts.rank_host});
  if (!o.shares.empty()) add({"--shares", o.shares});
  if (o.context > 0) add({"--context", std::to_string(o.context)});
  if (!o.kv_memory.empty()) add({"--kv-memory", o.kv_memory});
  if (o.max_batch > 0) add({"--max-batch", std::to_string(o.max_batch)});
  if (o.chunk > 0) add({"--chunk", std::to_string(o.chunk)});
  if (!o.isa.empty()) add({"--isa", o.isa});
  if (o.device != "cpu") {
    add({"--device", o.device, "--dtype", o.dtype, "--graphs", o.graphs});
    if (o.deterministic) add({"--deterministic"});
    if (o.device == "cuda")
      command.environment.push_back({"CUDA_VISIBLE_DEVICES", visible_gpus(hosts)});
  }
  if (geteuid() == 0)  // OpenMPI refuses root unless told twice
    command.environment.insert(
        command.environment.end(),
        {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
  return command;
}

}  // namespace cohort
