// SPDX-License-Identifier: Apache-2.0
// Time as a value that tests can set. Everything that waits takes a Deadline.
#pragma once
#include <chrono>
#include <limits>

namespace cohort {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::steady_clock::time_point;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
};

class SteadyClock : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

class ManualClock : public Clock {
 public:
  TimePoint now() const override { return now_; }
  void advance(Duration by) { now_ += by; }

 private:
  TimePoint now_{};
};

class Deadline {
 public:
  static Deadline after(Duration d) { return Deadline(std::chrono::steady_clock::now() + d); }
  explicit Deadline(TimePoint at) : at_(at) {}
  TimePoint at() const { return at_; }
  bool expired() const { return std::chrono::steady_clock::now() >= at_; }
  Duration left() const {
    const auto now = std::chrono::steady_clock::now();
    return now >= at_ ? Duration(0) : std::chrono::duration_cast<Duration>(at_ - now);
  }

 private:
  TimePoint at_;
};

inline double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace cohort
