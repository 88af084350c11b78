// SPDX-License-Identifier: Apache-2.0
// The attention kernels of each type.
#pragma once
#include "kernels/cuda/attention_parts.h"

namespace cohort::cuda {

// Largest head that tensor cores get; the plain kernel takes all.
inline constexpr int kMaxTensorDim = 256;

struct AttentionLaunch {
  AttentionArgs args;
  int multiprocessors;
  cudaStream_t stream;
};

// Activations and cache of one type, or `f8` in the cache.
cudaError_t attend_f16(const AttentionLaunch& launch, bool f8);
cudaError_t attend_bf16(const AttentionLaunch& launch, bool f8);

enum class Element : int { f32, f16, bf16, f8 };
// Any type of activations, any type of cache, any head up to kMaxGpuHeadDim, in f32.
cudaError_t attend_plain(const AttentionLaunch& launch, Element activations, Element cache);

// After one of them: results of what was cut, and the queue of items for the next launch.
cudaError_t merge_attention(const AttentionLaunch& launch, Element activations);

}  // namespace cohort::cuda
