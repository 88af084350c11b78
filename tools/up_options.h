// SPDX-License-Identifier: Apache-2.0
// What `cohort up` was asked for.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace cohort {

struct UpOptions {
  std::string model = "smollm2";
  int tp = 1, pp = 1, replicas = 1;
  int dp = 0, ep = 0;  // 0: follows from the other; see dp_groups()
  std::string shares, expert_shares, overlap = "auto", expert_copies = "auto", pin = "auto";
  bool compress_activations = false;
  int threads = 0;  // per rank; 0: the cores divided by all ranks
  std::string http = "127.0.0.1:8000", grpc = "127.0.0.1:9000";
  std::string activations = "auto", kv_dtype = "auto", communicator = "auto";
  std::string device = "cpu", dtype = "auto", graphs = "on";
  bool deterministic = false;
  int context = 0;  // 0: the model's, at most 8192
  std::string kv_memory, prefill_slowdown;
  std::string weight_cache;
  int max_batch = 0, chunk = 0;  // 0: the worker's default
  std::string isa, log_level = "info", served_model_name;
  std::vector<std::string> coordinator_arguments;

  // Several hosts; none: this machine.
  std::string hosts, rsh_agent = "ssh", network, listen, rank_host;

  int dp_groups() const { return dp > 0 ? dp : std::max(1, ep / tp); }
  int ranks() const { return tp * dp_groups() * pp; }
};

void declare_up_options(CLI::App& app, UpOptions& options);

}  // namespace cohort
