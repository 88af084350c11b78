// SPDX-License-Identifier: Apache-2.0
// How fast every kernel is at the shapes of Llama-3-8B, against the ceilings of the part `device`.
#pragma once
#include <algorithm>
#include <functional>
#include <memory>
#include <string>

#include "base/device_cuda.h"
#include "tools/gpu_check/report.h"
#include "tools/gpu_check/timing.h"

namespace cohort::gpu_check {

struct SpeedBench {
  Report& report;
  std::shared_ptr<CudaDevice> device;

  Timing timing() const { return {.tiny = report.tiny(), .seconds = 0.15, .most_repeats = 64}; }
  double seconds(const std::function<void(int)>& enqueue) const {
    return seconds_of(*device, enqueue, timing());
  }
  // One line: GB/s where memory limits the work, else TFLOP/s. memory: kRead or kCopy.
  void add(const std::string& name, const std::string& shape, double seconds, double bytes,
           double flops, const char* memory = kRead) const;
  // How many copies of something so large are not found in a cache when they are used in turn.
  int copies(double bytes) const {
    return report.tiny() ? 2 : int(std::clamp(256e6 / bytes, 1.0, 64.0)) + 1;
  }
};

void measure_rows(const SpeedBench& bench);
void measure_attention(const SpeedBench& bench);
void measure_products(const SpeedBench& bench);
void measure_sampler(const SpeedBench& bench);

}  // namespace cohort::gpu_check
