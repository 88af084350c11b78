// SPDX-License-Identifier: Apache-2.0
// What the batch loop is asked to do, between two steps. Any thread puts, the loop takes.
#pragma once
#include <condition_variable>
#include <mutex>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "worker/leader/sequence.h"

namespace cohort {

struct CancelRequest {
  SequenceId id;
};
using Command = std::variant<SequenceRequest, CancelRequest>;

class Inbox {
 public:
  // capacity: commands that wait for one plan boundary.
  explicit Inbox(size_t capacity) : capacity_(capacity) {}

  // RESOURCE_EXHAUSTED if full, UNAVAILABLE if closed: the command was not taken. A cancel always
  // has room: callers cancel only what they have submitted.
  Status put(Command command);
  // Everything so far, in order. Waits for the first until `wait` has passed or close(); an empty
  // vector then.
  std::vector<Command> take(Duration wait);
  // Wakes the loop up for good.
  void close();
  bool closed() const;

 private:
  const size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Command> commands_;  // this and below guarded by mutex_
  bool closed_ = false;
};

}  // namespace cohort
