// SPDX-License-Identifier: Apache-2.0
// How one layer's part of a KV block lies in memory (docs/arithmetic.md section 5):
//
//   block = chunk of kv head 0 | chunk of kv head 1 | ...
//   chunk = K [dim][16 tokens] | V [16 tokens][dim]
//           int8: | scales of K [16] | scales of V [16], f32
//
// Lanes are tokens for scores and dimensions for values, so no kernel needs a horizontal sum.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace cohort {

inline constexpr int kBlockTokens = 16;
inline constexpr int kMaxHeadDim = 640;     // latent rows of DeepSeek have 576 dimensions
inline constexpr int kMaxGpuHeadDim = 512;  // on a GPU

struct KvGeometry {
  int heads = 0;             // query heads of this rank
  int kv_heads = 0;          // KV heads that those read
  int dim = 0;               // of a head; a multiple of 8, at most kMaxHeadDim
  DType dtype = DType::f16;  // f32, bf16 or f16; on CPUs i8, on GPUs f8_e4m3
  // On CPUs, of a bf16 cache: whether attention is in bf16 arithmetic.
  bool bf16_arithmetic = false;
  // Where the first and the last KV head are read by query heads of other ranks, too.
  int group_heads = 0;    // query heads of a KV head on all ranks; 0: heads / kv_heads
  int skipped_heads = 0;  // of the first KV head's, that come before this rank's first

  int group() const { return group_heads > 0 ? group_heads : heads / kv_heads; }
  // The KV head that a query head of this rank reads.
  int kv_head_of(int head) const { return (head + skipped_heads) / group(); }
  // This rank's query heads [first_head(h), first_head(h + 1)) read KV head h.
  int first_head(int kv_head) const {
    return std::clamp(kv_head * group() - skipped_heads, 0, heads);
  }
  int heads_of(int kv_head) const { return first_head(kv_head + 1) - first_head(kv_head); }
  int most_heads() const {  // of one KV head
    int most = 0;
    for (int h = 0; h < kv_heads; h++) most = std::max(most, heads_of(h));
    return most;
  }
  // Whether the KV heads are those that the query heads read, each of them by one at least.
  bool consistent() const {
    if (kv_heads == 0) return heads == 0;
    if (group_heads == 0) return heads % kv_heads == 0 && skipped_heads == 0;
    return 0 <= skipped_heads && skipped_heads < group_heads &&
           (skipped_heads + heads + group_heads - 1) / group_heads == kv_heads;
  }
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
