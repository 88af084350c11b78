// SPDX-License-Identifier: Apache-2.0
// Whether a step is faster in two micro-batches. Cut in two, each weight is read twice, so that few
// rows take longer to compute; but what is computed hides collectives. Learned from the steps that
// ran, on any machine and link:
//
//   compute of a pass through the layers     a + b * rows          (docs/overlap.md section 3)
//   a collective                             c + d * bytes
//   each turn of two micro-batches           what was lost, as where threads want the same core
//
// A pure value; one thread.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "worker/leader/step_time_model.h"
#include "worker/replica_options.h"
#include "worker/step_plan.h"
#include "worker/step_times.h"

namespace cohort {

class SplitModel {
 public:
  // A step that was run. Order and gaps do not matter much.
  void learn(const StepTimes& step);
  // 1 or 2. 1 for the first steps. While steps of one size only are known, how times depend on it
  // is assumed.
  int micro_batches(int64_t rows) const;

  // Seconds of a step of `rows` rows: whole, or in two micro-batches.
  double whole_seconds(int64_t rows) const;
  double split_seconds(int64_t rows) const;

 private:
  double compute(int64_t rows) const;        // of one pass
  double communication(int64_t rows) const;  // likewise
  double overlapped(int64_t rows) const;     // of two passes, if nothing is lost

  StepTimeModel compute_;      // seconds of a pass by its rows
  StepTimeModel collectives_;  // seconds of a collective by its bytes
  double calls_ = 0;           // collectives of a pass
  double row_bytes_ = 0;       // bytes that all collectives of a pass send, per row
  double lost_seconds_ = 0;    // at each turn of two micro-batches, beyond what is predicted
  int64_t steps_ = 0;
};

// For the leader's batch loop. times: of rank 0, must outlive the policy. can_split: a replica of
// several ranks on the CPU.
std::function<int(const StepPlan&)> split_policy(Overlap overlap, bool can_split,
                                                 const StepLimits& limits,
                                                 const StepTimesBoard& times);

}  // namespace cohort
