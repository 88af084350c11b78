// SPDX-License-Identifier: Apache-2.0
// What `cohort up` was asked for, and the command lines that follow from it.
#pragma once
#include <string>
#include <vector>

#include "tools/process.h"

namespace CLI {
class App;
}

namespace cohort {

struct UpOptions {
  std::string model = "smollm2";
  int tp = 1, pp = 1, replicas = 1;
  std::string shares;
  int threads = 0;  // per rank; 0: the cores divided by all ranks
  std::string http = "127.0.0.1:8000", grpc = "127.0.0.1:9000";
  std::string activations = "auto", kv_dtype = "auto", communicator = "auto";
  std::string device = "cpu", dtype = "auto", graphs = "on";
  bool deterministic = false;
  int context = 0;  // 0: the model's, at most 8192
  std::string kv_memory;
  int max_batch = 0, chunk = 0;  // 0: the worker's default
  std::string isa, log_level = "info", served_model_name;
  std::vector<std::string> coordinator_arguments;

  int ranks() const { return tp * pp; }
};

void declare_up_options(CLI::App& app, UpOptions& options);

// program folder: where cohort-coordinator and cohort-worker lie. model: a resolved path.
Command coordinator_command(const UpOptions& options, const std::string& folder,
                            const std::string& model);
Command replica_command(const UpOptions& options, const std::string& folder,
                        const std::string& model, const std::string& session, int replica);

}  // namespace cohort
