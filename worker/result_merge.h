// SPDX-License-Identifier: Apache-2.0
// Puts a step's results together: each dp group's sampler answers every plan with those of its own
// entries, none where it had nothing to do. Samplers may be apart by as many steps as are in
// flight, but each answers in step order. Pure; one thread at a time.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "worker/step_plan.h"

namespace cohort {

class ResultMerge {
 public:
  explicit ResultMerge(const StepLimits& limits) : limits_(limits), answered_(size_t(limits.dp)) {}

  // A plan that was submitted, before any of its results.
  void expect(const StepPlan& plan);
  // What the sampler of a dp group answered. An error: it is not the answer to that group's next
  // plan, so that ranks and leader disagree.
  Status add(int dp, StepResult result);
  // The oldest step's result once all groups have answered: slots in plan order, seconds of the
  // slowest.
  std::optional<StepResult> take();

  // The groups that have yet to answer the oldest step.
  std::vector<int> missing() const;

 private:
  struct Pending {
    std::unordered_map<int32_t, size_t> places;  // of the plan's entries, by slot
    StepResult result;
    int32_t answers = 0;
  };

  const StepLimits limits_;
  std::deque<Pending> pending_;     // oldest first
  std::vector<uint64_t> answered_;  // by dp: the last step that it answered
};

}  // namespace cohort
