// SPDX-License-Identifier: Apache-2.0
// How one layer's part of a KV block lies in memory (docs/arithmetic.md section 5):
//
//   block = chunk of kv head 0 | chunk of kv head 1 | ...
//   chunk = K [dim][16 tokens] | V [16 tokens][dim]
//           int8: | scales of K [16] | scales of V [16], f32
//
// Lanes are tokens for scores and dimensions for values, so no kernel needs a horizontal sum.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace cohort {

inline constexpr int kBlockTokens = 16;
inline constexpr int kMaxHeadDim = 640;     // latent rows of DeepSeek have 576 dimensions
inline constexpr int kMaxGpuHeadDim = 512;  // on a GPU

struct KvGeometry {
  int heads = 0;             // query heads of this rank
  int kv_heads = 0;          // KV heads of this rank; divides heads
  int dim = 0;               // of a head; a multiple of 8, at most kMaxHeadDim
  DType dtype = DType::f16;  // f32, bf16 or f16; on CPUs i8, on GPUs f8_e4m3
  // On CPUs, of a bf16 cache: whether attention is in bf16 arithmetic.
  bool bf16_arithmetic = false;

  int group() const { return heads / kv_heads; }
  size_t plane_bytes() const { return size_t(bytes_of(dtype, int64_t(dim) * kBlockTokens)); }
  // Where in a chunk the scales begin, one per token; int8 only.
  size_t key_scales() const { return 2 * plane_bytes(); }
  size_t value_scales() const { return key_scales() + kBlockTokens * sizeof(float); }
  size_t chunk_bytes() const {
    return 2 * plane_bytes() + (dtype == DType::i8 ? 2 * kBlockTokens * sizeof(float) : 0);
  }
  size_t block_bytes() const { return size_t(kv_heads) * chunk_bytes(); }
};

// One layer's memory: block b starts at data + b * block_bytes().
struct KvLayer {
  std::byte* data = nullptr;
  KvGeometry geometry;
};

}  // namespace cohort
