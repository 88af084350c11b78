// SPDX-License-Identifier: Apache-2.0
// How large a step is launched on a GPU. It follows from the plan and the limits alone, so that all
// ranks launch the same, captured or not: collectives then agree.
#pragma once
#include <cstdint>

#include "kernels/cuda/sampler.h"
#include "worker/step_plan.h"

namespace cohort {

struct StepShape {
  // Every entry computes one position and samples it: rows are padded to a bucket, and a captured
  // step of that bucket can be replayed.
  bool decode = false;
  int64_t rows = 0;     // launched: with padding
  int64_t sampled = 0;  // rows of logits launched: with padding
  cuda::SamplerFeatures features;
  friend bool operator==(const StepShape&, const StepShape&) = default;
};

// The smallest power of two that is not less than n, or `most`.
inline int64_t bucket_of(int64_t n, int64_t most) {
  int64_t bucket = 1;
  while (bucket < n) bucket *= 2;
  return bucket < most ? bucket : most;
}

// Most sequences of one decode step.
inline int64_t most_decoding(const StepLimits& limits) {
  return limits.max_slots < limits.max_rows ? limits.max_slots : limits.max_rows;
}

}  // namespace cohort
