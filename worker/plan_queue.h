// SPDX-License-Identifier: Apache-2.0
// Plans on their way to the step thread: first in, first out, bounded, thread-safe.
#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include "base/clock.h"
#include "worker/step_plan.h"

namespace cohort {

class PlanQueue {
 public:
  explicit PlanQueue(int capacity) : capacity_(size_t(capacity)) {}

  // False, and nothing changed, where the queue is full. A closed queue drops the plan.
  bool push(StepPlan plan) {
    {
      const std::lock_guard lock(mutex_);
      if (plans_.size() >= capacity_) return false;
      plans_.push_back(std::move(plan));
    }
    changed_.notify_one();
    return true;
  }

  // Waits, without a deadline: an idle rank waits for as long as it likes, and close() ends it.
  // Nothing after close().
  std::optional<StepPlan> pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !plans_.empty(); });
    if (closed_) return std::nullopt;
    return take();
  }

  // Waits for so long at most. Nothing where none came, and after close().
  std::optional<StepPlan> pop_for(Duration patience) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, patience, [&] { return closed_ || !plans_.empty(); });
    if (closed_ || plans_.empty()) return std::nullopt;
    return take();
  }

  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }
  bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  StepPlan take() {  // mutex_ is held
    StepPlan plan = std::move(plans_.front());
    plans_.pop_front();
    return plan;
  }

  const size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<StepPlan> plans_;
  bool closed_ = false;
};

}  // namespace cohort
