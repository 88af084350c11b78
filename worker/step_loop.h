// SPDX-License-Identifier: Apache-2.0
// Takes plans from a queue and gives results in their order, keeping the device as many plans ahead
// as it can take: on a GPU plan N + 1 is launched while N computes. Watched: while a plan is
// unfinished, the watchdog measures. By the step thread.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>

#include "base/status.h"
#include "worker/plan_queue.h"
#include "worker/rank.h"
#include "worker/watchdog.h"

namespace cohort {

class StepLoop {
 public:
  // Borrows all. Pins the calling thread, which must be the one that calls next().
  StepLoop(Rank& rank, PlanQueue& plans, Watchdog& watchdog)
      : rank_(rank), plans_(plans), watchdog_(watchdog) {
    rank.pin_step_thread();
  }

  // What became of the next plan: its result on the rank that samples, else nothing. Waits for a
  // plan where there is none; while it waits a load may be due, which is then all there is.
  struct Outcome {
    bool ended = false;  // the queue was closed
    std::optional<StepResult> result;
    std::optional<ExpertLoad> load;  // at most once a second
  };
  Result<Outcome> next();

 private:
  std::optional<StepPlan> wait_for_plan();
  Status launch(const StepPlan& plan);
  Status run_ahead();
  std::optional<ExpertLoad> take_load();

  Rank& rank_;
  PlanQueue& plans_;
  Watchdog& watchdog_;
  std::deque<int64_t> rows_;  // of the plans that are launched
  TimePoint load_due_{};      // when the experts' load may be told again
  bool load_untold_ = false;  // of steps since it was told
};

}  // namespace cohort
