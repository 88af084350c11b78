// SPDX-License-Identifier: Apache-2.0
#include "worker/rank.h"

#include <utility>

namespace cohort {

Result<std::optional<StepResult>> Rank::execute(const StepPlan& plan) {
  busy_.store(true, std::memory_order_relaxed);
  auto result = runner_->execute(plan);
  if (!result.ok()) return result.status().annotate(concat("rank ", rank_, " on ", host_));
  finished_.store(plan.step, std::memory_order_relaxed);
  busy_.store(false, std::memory_order_relaxed);
  return result;
}

void Rank::set_patience(Duration patience) {
  tp_->set_timeout(patience);
  pp_->set_timeout(patience);
  world_->set_timeout(patience);
}

void Rank::abort(const Status& why) {
  tp_->abort(why);
  pp_->abort(why);
  world_->abort(why);
}

Progress Rank::progress() const {
  return {.step = finished_.load(std::memory_order_relaxed),
          .busy = busy_.load(std::memory_order_relaxed),
          .where = runner_->where().text()};
}

}  // namespace cohort
