// SPDX-License-Identifier: Apache-2.0
#include "worker/watchdog.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace cohort {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(200);
constexpr Duration kGrace = std::chrono::seconds(3);

Duration from_seconds(double s) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(s));
}

}  // namespace

void StepPatience::learn(Duration took, int64_t rows) {
  // A twentieth for the newest: some dozens of steps count.
  const double weight = learned_ ? 0.05 : 1;
  step_seconds_ += weight * (seconds(took) - step_seconds_);
  row_seconds_ += weight * (seconds(took) / double(std::max<int64_t>(rows, 1)) - row_seconds_);
  learned_ = true;
}

Duration StepPatience::allowed(int64_t rows) const {
  if (!learned_) return 6 * least_;
  const double usual = std::max(step_seconds_, row_seconds_ * double(rows));
  return std::max(least_, from_seconds(10 * usual));
}

Watchdog::Watchdog(Duration least, Calls calls)
    : calls_(std::move(calls)), patience_(least), thread_([this] { run(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::begin(int64_t rows) {
  {
    const std::lock_guard lock(mutex_);
    busy_ = true;
    steps_++;
    rows_ = rows;
    started_ = std::chrono::steady_clock::now();
  }
  changed_.notify_all();
}

void Watchdog::end() {
  const std::lock_guard lock(mutex_);
  busy_ = false;
  patience_.learn(std::chrono::steady_clock::now() - started_, rows_);
}

Duration Watchdog::allowed(int64_t rows) const {
  const std::lock_guard lock(mutex_);
  return patience_.allowed(rows);
}

void Watchdog::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const bool was_busy = busy_;
    lock.unlock();
    calls_.report(calls_.progress());
    lock.lock();
    if (busy_ || was_busy != busy_)
      changed_.wait_for(lock, kTick, [&] { return stop_; });
    else
      changed_.wait(lock, [&] { return stop_ || busy_; });
    if (busy_ && std::chrono::steady_clock::now() - started_ > 2 * patience_.allowed(rows_))
      return watch(lock);
  }
}

// The step has stalled: says so, then waits for the end of the step or for the end of hope.
void Watchdog::watch(std::unique_lock<std::mutex>& lock) {
  const Duration allowed = 2 * patience_.allowed(rows_);
  lock.unlock();
  const Progress progress = calls_.progress();
  calls_.stalled(deadline_exceeded(concat("step ", progress.step + 1, " is not done after ",
                                          seconds(allowed), " s; it is in: ", progress.where)));
  lock.lock();
  const uint64_t stalled_step = steps_;
  const Deadline deadline = Deadline::after(kGrace);
  while (!stop_ && busy_ && steps_ == stalled_step && !deadline.expired())
    changed_.wait_for(lock, kTick);
  const bool hopeless = !stop_ && busy_ && steps_ == stalled_step;
  lock.unlock();
  if (hopeless) calls_.hopeless();
}

}  // namespace cohort
