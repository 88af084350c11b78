// SPDX-License-Identifier: Apache-2.0
// What `cohort-worker` is started with.
#pragma once
#include <string>
#include <variant>

#include "base/log.h"
#include "comm/communicator.h"
#include "worker/leader/step_time_model.h"
#include "worker/replica_options.h"

namespace cohort {

// What was asked for cannot be: starting it again would end the same way.
inline constexpr int kExitUsage = 64;

struct WorkerOptions {
  ReplicaOptions replica;
  CommunicatorKind communicator = CommunicatorKind::automatic;
  std::string coordinator;  // host:port
  std::string name = "replica-0";
  std::string rank_host;  // where the leader listens for its ranks; "": found out
  LogLevel log_level = LogLevel::info;
  std::string record_plans;   // a path; "": none
  bool expert_copies = true;  // of hot experts, where there are dp groups
  double prefill_slowdown = kPrefillSlowdown;
};

// The options, or the exit code after a message or help has been printed.
std::variant<WorkerOptions, int> parse_worker_options(int argc, char** argv);

}  // namespace cohort
