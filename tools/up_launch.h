// SPDX-License-Identifier: Apache-2.0
// The command lines that follow from what `cohort up` was asked for.
#pragma once
#include <string>

#include "tools/process.h"
#include "tools/up_hosts.h"
#include "tools/up_options.h"

namespace cohort {

// Where things are: the same paths on all hosts.
struct UpPaths {
  std::string folder;  // of cohort-coordinator and cohort-worker
  std::string model;   // resolved
};

Command coordinator_command(const UpOptions& options, const UpPaths& paths,
                            const std::string& listen);
// session: where the coordinator takes leaders. keeper: of the HostWatch; "" if all ranks are here.
Command replica_command(const UpOptions& options, const UpPaths& paths, const HostPlan& plan,
                        const std::string& session, const std::string& keeper, int replica);

}  // namespace cohort
