// SPDX-License-Identifier: Apache-2.0
// Where `cohort up --hosts` runs the ranks of each replica, and over which addresses they and the
// coordinator meet. Asks the name service and the routes of this machine; starts nothing.
#pragma once
#include <string>
#include <vector>

#include "base/status.h"
#include "tools/host_list.h"

namespace cohort {

struct UpOptions;

struct ReplicaHosts {
  HostList hosts;                   // empty: this machine, as without --hosts
  std::vector<std::string> others;  // those that are not this machine, in order
  std::string rank_host;            // where rank 0 listens for ranks; "": the worker chooses
  std::string network;              // that ranks talk over, for MPI; "": MPI chooses
  int first_gpu = 0, gpus = 0;      // that are its own, on each host
};

struct HostPlan {
  std::string listen = "127.0.0.1";  // of this machine, which leaders and hosts can reach
  int most_ranks = 1;                // of all replicas together, on one host
  std::vector<ReplicaHosts> replicas;
};

Result<HostPlan> plan_hosts(const UpOptions& options);

}  // namespace cohort
