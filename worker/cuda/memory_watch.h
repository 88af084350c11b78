// SPDX-License-Identifier: Apache-2.0
// Warns when a GPU is nearly full. Cohort takes its memory at load, but libraries take some late,
// and so may other processes; an allocation that fails then ends the replica.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "base/check.h"
#include "base/device.h"

namespace cohort {

class MemoryWatch {
 public:
  // Asking the driver takes some time: it is done once in so many steps.
  static constexpr int kSteps = 1000;
  // Of the device's memory; below it `warn` is called, and again only after more was free.
  static constexpr double kWatermark = 0.02;

  // Borrows the device.
  MemoryWatch(const Device& device, std::function<void(const std::string&)> warn)
      : device_(device), warn_(std::move(warn)) {}

  // After every step.
  void step() {
    if (++steps_ % kSteps != 0) return;
    const DeviceMemory memory = device_.memory();
    const bool low = double(memory.free) < kWatermark * double(memory.total);
    if (low && !low_)
      warn_(concat("only ", memory.free >> 20, " of ", memory.total >> 20, " MiB are free on ",
                   device_.name(), ": what needs more will fail; lower --kv-memory or look for ",
                   "other processes on the GPU"));
    low_ = low;
  }

 private:
  const Device& device_;
  const std::function<void(const std::string&)> warn_;
  int64_t steps_ = 0;
  bool low_ = false;
};

}  // namespace cohort
