// SPDX-License-Identifier: Apache-2.0
// Notices a step that does not end: after twice what a step may take, because a step that stands in
// a collective should fail by that collective's own timeout, which names who did not come. It has
// one thread, which sleeps while no step runs; while one runs it also reports progress, for
// heartbeats, a few times a second.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "comm/control.h"

namespace cohort {

// How long a step, and so a collective within it, may take: ten times what the last ones took, per
// step or per row, whichever is more, but never less than `least`. Before the first step is done:
// six times `least`.
class StepPatience {
 public:
  explicit StepPatience(Duration least) : least_(least) {}
  void learn(Duration took, int64_t rows);
  Duration allowed(int64_t rows) const;

 private:
  const Duration least_;
  bool learned_ = false;
  double step_seconds_ = 0, row_seconds_ = 0;  // running averages
};

class Watchdog {
 public:
  struct Calls {
    std::function<Progress()> progress;           // of the rank
    std::function<void(const Progress&)> report;  // for the next heartbeat
    std::function<void(const Status&)> stalled;   // once; DEADLINE_EXCEEDED saying where
    std::function<void()> hopeless;               // once, if the step has not ended 3 s after that
  };
  // All calls come from the watchdog's thread.
  Watchdog(Duration least, Calls calls);
  ~Watchdog();

  // Around every step, by the step thread.
  void begin(int64_t rows);
  void end();
  // For a step of `rows` rows, from what has been seen. Any thread.
  Duration allowed(int64_t rows) const;

 private:
  void run();
  void watch(std::unique_lock<std::mutex>& lock);

  const Calls calls_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  StepPatience patience_;  // guarded by mutex_, as all below
  bool stop_ = false, busy_ = false;
  uint64_t steps_ = 0;  // begun
  int64_t rows_ = 0;
  TimePoint started_{};
  std::thread thread_;
};

}  // namespace cohort
