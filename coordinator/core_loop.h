// SPDX-License-Identifier: Apache-2.0
// The thread that owns the coordinator's state. Everything that changes it is a task posted here,
// so that state needs no locks. After each batch of tasks, and at least every `tick`, round() runs:
// it looks at the clock and hands out work.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace cohort {

class CoreLoop {
 public:
  // round is called by the loop's thread; it starts with start().
  CoreLoop(std::function<void()> round, Duration tick);
  ~CoreLoop();  // stop()
  CoreLoop(const CoreLoop&) = delete;
  CoreLoop& operator=(const CoreLoop&) = delete;

  void start();
  // Runs what was posted before, then ends the thread. Later posts are dropped.
  void stop();
  // Any thread. The fronts' admission bounds how many tasks there can be.
  void post(std::function<void()> task);

 private:
  void run();

  const std::function<void()> round_;
  const Duration tick_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::function<void()>> tasks_;  // guarded by mutex_
  bool stopping_ = false;                     // guarded by mutex_
};

}  // namespace cohort
