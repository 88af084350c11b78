// SPDX-License-Identifier: Apache-2.0
// The leader's knowledge of its experts: takes the ranks' reports, gives the copies of the next
// plan and what the coordinator is told. Thread-safe.
#pragma once
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "worker/expert_load.h"
#include "worker/leader/expert_balancer.h"

namespace cohort {

// For operators. A plain value.
struct ExpertReport {
  struct Layer {
    int32_t layer = 0;
    std::vector<uint64_t> tokens;  // by expert, since the replica started
  };
  std::vector<Layer> layers;
  double imbalance = 0;  // ExpertBalancer::imbalance
  int copies = 0;
};

class ExpertBoard {
 public:
  // copies: whether any are made.
  ExpertBoard(ExpertOwners owners, BalancerOptions options, bool copies);

  Status add(const ExpertLoad& load);
  std::vector<ExpertCopy> next_copies();
  // Empty where the model has no experts, and before the first load.
  ExpertReport report();

 private:
  const bool copies_;
  std::mutex mutex_;
  ExpertBalancer balancer_;  // guarded by mutex_, as all below
  ExpertReport report_;      // its totals
};

}  // namespace cohort
