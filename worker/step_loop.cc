// SPDX-License-Identifier: Apache-2.0
#include "worker/step_loop.h"

#include <algorithm>
#include <utility>

namespace cohort {

namespace {

// Between looks at whether the device has finished, while a plan may come.
constexpr Duration kLook = std::chrono::microseconds(50);

// Between reports of the experts' load.
constexpr Duration kLoadInterval = std::chrono::seconds(1);

TimePoint now() { return std::chrono::steady_clock::now(); }

}  // namespace

Result<StepLoop::Outcome> StepLoop::next() {
  if (rows_.empty()) {
    const std::optional<StepPlan> plan = wait_for_plan();
    if (!plan && plans_.closed()) return Outcome{.ended = true, .result = {}, .load = {}};
    if (!plan) return Outcome{.ended = false, .result = {}, .load = take_load()};
    COHORT_RETURN_IF_ERROR(launch(*plan));
  }
  COHORT_RETURN_IF_ERROR(run_ahead());
  auto result = rank_.collect();
  watchdog_.end();
  if (!result.ok()) return result.status();
  rows_.pop_front();
  if (!rows_.empty()) watchdog_.begin(rows_.front());
  load_untold_ = true;
  return Outcome{.ended = false, .result = std::move(*result), .load = take_load()};
}

// Nothing where the queue was closed, or where nothing came until a load may be told.
std::optional<StepPlan> StepLoop::wait_for_plan() {
  if (!load_untold_) return plans_.pop();
  return plans_.pop_for(std::max(load_due_ - now(), Duration(0)));
}

std::optional<ExpertLoad> StepLoop::take_load() {
  if (!load_untold_ || now() < load_due_) return std::nullopt;
  load_untold_ = false;
  load_due_ = now() + kLoadInterval;
  return rank_.take_expert_load();
}

// Launches what comes while the device computes.
Status StepLoop::run_ahead() {
  // So that collect, which then waits for all of the patience, gives up before the watchdog does.
  const TimePoint give_up = now() + rank_.patience() / 2;
  while (int(rows_.size()) < rank_.depth() && !rank_.finished() && !plans_.closed() &&
         now() < give_up) {
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
