// SPDX-License-Identifier: Apache-2.0
// What the leader tells the coordinator of its ranks: who they are, from start-up, and how they
// are, from their heartbeats. Thread-safe.
#pragma once
#include <mutex>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/control.h"
#include "worker/leader/session.h"
#include "worker/rank.h"

namespace cohort {

// Called by all ranks together at start-up: everybody's host, process and device.
Result<std::vector<RankState>> introduce_ranks(World& world, const std::string& device,
                                               Duration timeout);

class RankStates {
 public:
  // hub: null where rank 0 is alone. Borrows both.
  RankStates(std::vector<RankState> ranks, const Rank& rank, const ControlHub* hub);
  std::vector<RankState> now();

 private:
  const Rank& rank_;
  const ControlHub* const hub_;
  std::mutex mutex_;
  std::vector<RankState> ranks_;  // guarded by mutex_, as all below
  uint64_t step_ = 0;             // of a lone rank 0, and when it rose
  TimePoint progressed_{};
};

}  // namespace cohort
