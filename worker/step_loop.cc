// SPDX-License-Identifier: Apache-2.0
#include "worker/step_loop.h"

#include <utility>

namespace cohort {

Result<StepLoop::Outcome> StepLoop::next() {
  while (int(rows_.size()) < rank_.depth()) {
    const std::optional<StepPlan> plan = rows_.empty() ? plans_.pop() : plans_.try_pop();
    if (!plan && rows_.empty()) return Outcome{.ended = true, .result = {}};
    if (!plan) break;
    COHORT_RETURN_IF_ERROR(launch(*plan));
  }
  auto result = rank_.collect();
  watchdog_.end();
  if (!result.ok()) return result.status();
  rows_.pop_front();
  if (!rows_.empty()) watchdog_.begin(rows_.front());
  return Outcome{.ended = false, .result = std::move(*result)};
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
