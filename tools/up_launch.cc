// SPDX-License-Identifier: Apache-2.0
#include "tools/up_launch.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <thread>

namespace cohort {
namespace {

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

// What a rank is started with.
std::vector<std::string> worker_arguments(const UpOptions& o, const UpPaths& paths,
                                          const HostPlan& plan, const std::string& session,
                                          int replica) {
  std::vector<std::string> arguments = {paths.folder + "/cohort-worker",
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
                                        o.log_level};
  auto add = [&](const std::string& option, const std::string& value) {
    if (!value.empty()) arguments.insert(arguments.end(), {option, value});
  };
  auto number = [](int value) { return value > 0 ? std::to_string(value) : std::string(); };
  add("--dp", number(o.dp));
  add("--ep", number(o.ep));
  add("--shares", o.shares);
  add("--expert-shares", o.expert_shares);
  add("--overlap", o.overlap == "auto" ? "" : o.overlap);
  add("--pin", o.pin == "auto" ? "" : o.pin);
  add("--expert-copies", o.expert_copies == "auto" ? "" : o.expert_copies);
  if (o.compress_activations) arguments.push_back("--compress-activations");
  add("--rank-host", plan.replicas[size_t(replica)].rank_host);
  add("--context", number(o.context));
  add("--kv-memory", o.kv_memory);
  add("--max-batch", number(o.max_batch));
  add("--chunk", number(o.chunk));
  add("--prefill-slowdown", o.prefill_slowdown);
  add("--weight-cache", o.weight_cache);
  add("--isa", o.isa);
  if (o.device == "cpu") return arguments;
  arguments.insert(arguments.end(),
                   {"--device", o.device, "--dtype", o.dtype, "--graphs", o.graphs});
  if (o.deterministic) arguments.push_back("--deterministic");
  return arguments;
}

}  // namespace

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
  for (const auto& more : {hosts_arguments(o, paths.folder, hosts, keeper),
                           worker_arguments(o, paths, plan, session, replica)})
    command.arguments.insert(command.arguments.end(), more.begin(), more.end());
  if (o.device == "cuda")
    command.environment.push_back({"CUDA_VISIBLE_DEVICES", visible_gpus(hosts)});
  if (geteuid() == 0)  // OpenMPI refuses root unless told twice
    command.environment.insert(
        command.environment.end(),
        {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
  return command;
}

}  // namespace cohort
