// SPDX-License-Identifier: Apache-2.0
// What became of a sampled row, as the GPU writes it.
#pragma once
#include <cstdint>

namespace cohort::cuda {

inline constexpr int kMostLogprobs = 20;

struct SampledRow {
  int32_t token = 0;
  int32_t finite = 1;
  float logprob = 0;
  int32_t top_count = 0;
  int32_t top_tokens[kMostLogprobs] = {};
  float top_logprobs[kMostLogprobs] = {};
};

}  // namespace cohort::cuda
