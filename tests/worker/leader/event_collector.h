// SPDX-License-Identifier: Apache-2.0
// A sink that keeps what it is given, for tests that wait for it.
#pragma once
#include <condition_variable>
#include <map>
#include <mutex>
#include <vector>

#include "worker/leader/batch_loop.h"

namespace cohort {

class EventCollector : public EventSink {
 public:
  void publish(std::vector<SequenceEvent> events) override {
    const std::lock_guard lock(mutex_);
    for (SequenceEvent& event : events) {
      if (event.token) outputs_[event.id].push_back(event.token->token);
      if (event.finish) ends_[event.id] = std::move(event);
    }
    changed_.notify_all();
  }

  bool wait_for_ends(size_t count, Duration timeout) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [&] { return ends_.size() >= count; });
  }
  std::map<SequenceId, std::vector<int32_t>> outputs() const {
    const std::lock_guard lock(mutex_);
    return outputs_;
  }
  SequenceEvent end(SequenceId id) const {
    const std::lock_guard lock(mutex_);
    return ends_.at(id);
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<SequenceId, std::vector<int32_t>> outputs_;
  std::map<SequenceId, SequenceEvent> ends_;
};

}  // namespace cohort
