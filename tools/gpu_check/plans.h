// SPDX-License-Identifier: Apache-2.0
// Step plans made by hand, for measurements.
#pragma once
#include <cstdint>

#include "worker/step_plan.h"

namespace cohort::gpu_check {

// Greedy sequences. Plans must be run in the order in which they were made.
class PlanMaker {
 public:
  PlanMaker(const StepLimits& limits, int64_t vocab) : limits_(limits), vocab_(vocab) {}

  // Forgets all sequences; then `batch` new ones of which the first `context` positions count as
  // computed (their cache holds what it holds: time does not depend on it). Each decodes one token
  // here, and one more in each of `more` later plans.
  StepPlan start_decoding(int batch, int context, int more);
  StepPlan decode_on();
  // Forgets all sequences, then computes a prompt of `length`.
  StepPlan prefill(int length);

 private:
  StepPlan empty();
  StepEntry entry(int slot, int blocks, int tokens) const;
  StepPlan finish(StepPlan plan);

  const StepLimits limits_;
  const int64_t vocab_;
  uint64_t step_ = 0, checksum_ = 0;
  int running_ = 0, position_ = 0;
};

}  // namespace cohort::gpu_check
