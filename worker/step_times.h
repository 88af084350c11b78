// SPDX-License-Identifier: Apache-2.0
// Where the time of a rank's steps went. Of one step, wall time = compute + idle, and communication
// = hidden + what of it the step thread waited for.
#pragma once
#include <cstdint>
#include <mutex>

#include "parallel/verb_line.h"

namespace cohort {

struct StepTimes {
  double compute = 0;        // seconds in which the step thread did not wait
  double communication = 0;  // that verbs ran, which includes waiting for peers
  double hidden = 0;         // of communication, while the step thread computed
  double idle = 0;           // that the step thread waited for verbs, or ran them itself
  int64_t bytes_sent = 0;
  std::array<VerbTotals, kGroupKinds> groups = {};  // the same, by group
  int64_t steps = 0;
  int64_t rows = 0;           // of this dp group
  int64_t micro_batches = 0;  // passes through the layers

  double seconds() const { return compute + idle; }
  StepTimes& operator+=(const StepTimes& other);
};

struct StepSize {
  int64_t rows = 0;
  int64_t micro_batches = 1;
};
// Of a step that took `seconds` and had the line's verbs between two looks at its times.
StepTimes step_times(double seconds, const CommunicationTimes& before,
                     const CommunicationTimes& after, StepSize size);

// Added to by the step thread once per step, read by any.
class StepTimesBoard {
 public:
  void add(const StepTimes& step);
  StepTimes total() const;
  StepTimes last() const;

 private:
  mutable std::mutex mutex_;
  StepTimes total_, last_;  // guarded by mutex_
};

}  // namespace cohort
