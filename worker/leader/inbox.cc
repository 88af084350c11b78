// SPDX-License-Identifier: Apache-2.0
#include "worker/leader/inbox.h"

#include <utility>

namespace cohort {

Status Inbox::put(Command command) {
  const std::lock_guard lock(mutex_);
  if (closed_) return unavailable("the replica is shutting down");
  if (commands_.size() >= capacity_ && std::holds_alternative<SequenceRequest>(command))
    return resource_exhausted(concat("the replica has ", capacity_,
                                     " commands waiting for its next step: try again later"));
  commands_.push_back(std::move(command));
  changed_.notify_one();
  return Status::ok_status();
}

std::vector<Command> Inbox::take(Duration wait) {
  std::unique_lock lock(mutex_);
  if (wait > Duration(0))
    changed_.wait_for(lock, wait, [this] { return closed_ || !commands_.empty(); });
  return std::exchange(commands_, {});
}

void Inbox::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

bool Inbox::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

}  // namespace cohort
