// SPDX-License-Identifier: Apache-2.0
// Time on the GPU, by events.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>

#include "base/device_cuda.h"

namespace cohort::gpu_check {

struct Timing {
  bool tiny = false;      // two runs are enough
  double seconds = 0.3;   // of measuring, roughly
  int most_repeats = 64;  // of the work in one launch
};

// Seconds of one `enqueue` on the compute stream: it is captured several times in a row, with
// 0, 1, 2, ... as its argument, so that launches cost nothing and successive runs can use different
// memory; the median of several launches.
double seconds_of(CudaDevice& device, const std::function<void(int)>& enqueue,
                  const Timing& timing);

}  // namespace cohort::gpu_check
