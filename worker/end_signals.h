// SPDX-License-Identifier: Apache-2.0
// SIGTERM and SIGINT end a worker in order: they are blocked in all threads, and taken by the one
// that knows how to end just then.
#pragma once
#include <thread>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "worker/rank_loop.h"

namespace cohort {

// Before any thread starts: they inherit it.
void block_end_signals();
// Whether one has come, now or within `wait`.
bool told_to_end(Duration wait = std::chrono::milliseconds(100));
void wait_for_end_signal();

// While a rank loads there is nothing to end in order: a signal ends the process at once, with
// kExitDone. After the destructor, which takes no time, signals wait for told_to_end().
class EndOnSignal {
 public:
  explicit EndOnSignal(EndProcess end_process);
  ~EndOnSignal();

 private:
  const FileDescriptor stop_;  // an event
  std::thread thread_;
};

}  // namespace cohort
