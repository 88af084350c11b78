// SPDX-License-Identifier: Apache-2.0
// The sampler's arithmetic on a GPU: docs/arithmetic.md section 6, to the bit. Products and sums
// are spelt out, for nvcc would fuse them.
#pragma once
#include "kernels/cuda/exp2_device.h"
#include "kernels/cuda/portable.h"
#include "kernels/cuda/sample_args.h"

namespace cohort::cuda {

// A block of kTileThreads looks at a tile of a row: four threads per kWeightBlock tokens, so that a
// thread's 16-byte loads hold four of the 16 strided sums.
constexpr int kTileThreads = kTile / kWeightBlock * 4;
constexpr uint32_t kInfinityBits = 0x7f800000, kMarked = 0xff800001;
constexpr float kNegativeInfinity = -__builtin_huge_valf();

// How tokens of a row are weighed.
struct Weighing {
  float top, scale, min_p;
  GPU_FN float exponent(float logit) const { return __fmul_rn(__fsub_rn(logit, top), scale); }
  GPU_FN float operator()(float logit) const {
    const float w = exp2_of(exponent(logit));
    return w < min_p ? 0 : w;
  }
};

// Keys of lower numbers are more likely; among equal logits those of lower tokens. -0 is 0.
GPU_FN unsigned long long order_key(float logit, int token) {
  const uint32_t bits = __float_as_uint(__fadd_rn(logit, 0.0f));
  const uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<unsigned long long>(~ascending) << 32 | static_cast<uint32_t>(token);
}
GPU_FN int token_of(unsigned long long key) { return static_cast<int>(key & 0xffffffffu); }
GPU_FN float logit_of(unsigned long long key) {
  const uint32_t ascending = ~static_cast<uint32_t>(key >> 32);
  return __uint_as_float(ascending & 0x80000000u ? ascending & 0x7fffffffu : ~ascending);
}

struct Quad {
  float at[4];
};
// Logits i .. i + 3 of a row, i a multiple of 4; -infinity past the end. aligned: rows begin at
// multiples of 16 bytes.
template <bool aligned>
GPU_FN Quad load_quad(const float* row, int i, int vocab) {
  if (aligned && i < vocab) return gpu::load16<Quad>(row + i);
  Quad q;
#pragma unroll
  for (int j = 0; j < 4; j++) q.at[j] = !aligned && i + j < vocab ? row[i + j] : kNegativeInfinity;
  return q;
}

// Where quad s (0 .. 15) of this thread begins in its row.
GPU_FN int quad_begin(int s) {
  return static_cast<int>(blockIdx.x) * kTile + static_cast<int>(threadIdx.x) / 4 * kWeightBlock +
         s * 16 + static_cast<int>(threadIdx.x) % 4 * 4;
}

struct Top {
  float logit;
  int token;
  bool ok;  // nothing is NaN or +infinity, something is above -infinity
};
// Of a whole row, for all lanes of the calling warp.
GPU_FN Top merge_tiles(const TileSummary* tiles, int count) {
  unsigned long long key = ~0ull;
  uint32_t magnitude = 0;
#pragma unroll 2
  for (int i = static_cast<int>(threadIdx.x) % 32; i < count; i += 32) {
    const auto tile = gpu::load16<TileSummary>(tiles + i);
    key = tile.key < key ? tile.key : key;
    magnitude = tile.magnitude > magnitude ? tile.magnitude : magnitude;
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const unsigned long long other = __shfl_xor_sync(0xffffffffu, key, lanes);
    key = other < key ? other : key;
  }
  magnitude = __reduce_max_sync(0xffffffffu, magnitude);
  const float logit = logit_of(key);
  const bool between = logit > kNegativeInfinity && logit < -kNegativeInfinity;
  return {logit, token_of(key), magnitude <= kInfinityBits && between};
}

GPU_FN bool penalises(const RowInput& in) {
  return in.frequency != 0 || in.presence != 0 || in.repetition != 1;
}
GPU_FN bool adjusts(const RowInput& in) { return in.biases > 0 || in.masked > 0 || penalises(in); }
// Whether fewer than all tokens can be drawn, as far as the parameters tell.
GPU_FN bool cuts_k(const RowInput& in, int vocab) { return in.top_k > 0 && in.top_k < vocab; }

// Threads of a block that has a row for itself.
constexpr int kRowThreads = 512;
inline int row_threads(int vocab) { return vocab > 16384 ? kRowThreads : 128; }

// Adds the blocks' sums pairwise, level by level, an odd one out moving up unchanged. Called by all
// threads of the block; returns the last level's node.
GPU_FN const double* add_blocks(double* nodes, const float* block_sums, int blocks) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
#pragma unroll 1
  for (int b = thread; b < blocks; b += threads) nodes[b] = block_sums[b];
  __syncthreads();
  for (int count = blocks; count > 1; count = (count + 1) / 2) {
    double* up = nodes + count;
#pragma unroll 1
    for (int i = 2 * thread; i < count; i += 2 * threads)
      up[i / 2] = i + 1 < count ? __dadd_rn(nodes[i], nodes[i + 1]) : nodes[i];
    nodes = up;
    __syncthreads();
  }
  return nodes;
}

}  // namespace cohort::cuda
