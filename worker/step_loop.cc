// SPDX-License-Identifier: Apache-2.0
#include "worker/step_loop.h"

#include <utility>

namespace cohort {

namespace {

// Between looks at whether the device has finished, while a plan may come.
constexpr Duration kLook = std::chrono::microseconds(50);

}  // namespace

Result<StepLoop::Outcome> StepLoop::next() {
  if (rows_.empty()) {
    const std::optional<StepPlan> plan = plans_.pop();
    if (!plan) return Outcome{.ended = true, .result = {}};
    COHORT_RETURN_IF_ERROR(launch(*plan));
  }
  COHORT_RETURN_IF_ERROR(run_ahead());
  auto result = rank_.collect();
  watchdog_.end();
  if (!result.ok()) return result.status();
  rows_.pop_front();
  if (!rows_.empty()) watchdog_.begin(rows_.front());
  return Outcome{.ended = false, .result = std::move(*result)};
}

// Launches what comes while the device computes.
Status StepLoop::run_ahead() {
  // So that collect, which then waits for all of the patience, gives up before the watchdog does.
  const TimePoint give_up = std::chrono::steady_clock::now() + rank_.patience() / 2;
  while (int(rows_.size()) < rank_.depth() && !rank_.finished() && !plans_.closed() &&
         std::chrono::steady_clock::now() < give_up) {
    const std::optional<StepPlan> plan = plans_.pop_for(kLook);
    if (plan) COHORT_RETURN_IF_ERROR(launch(*plan));
  }
  return {};
}

Status StepLoop::launch(const StepPlan& plan) {
  rank_.set_patience(watchdog_.allowed(plan.rows()));
  if (rows_.empty()) watchdog_.begin(plan.rows());
  rows_.push_back(plan.rows());
  Status launched = rank_.launch(plan);
  if (!launched.ok()) watchdog_.end();
  return launched;
}

}  // namespace cohort
