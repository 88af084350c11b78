// SPDX-License-Identifier: Apache-2.0
// One split of keys for 16 (position, head) pairs of a warp on tensor cores. Fragments are those of
// PTX ISA, "Matrix Fragments for mma.m16n8k16": thread `lane` holds rows lane / 4 and lane / 4 + 8.
#pragma once
#include <type_traits>

#include "kernels/cuda/attention_load.h"

namespace cohort::cuda {

template <class A>
GPU_FN void mma(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  const std::uint32_t b[2] = {b0, b1};
  if constexpr (std::is_same_v<A, __half>)
    gpu::mma_m16n8k16_f16(d, a, b);
  else
    gpu::mma_m16n8k16_bf16(d, a, b);
}

// Weights are at most 1: no saturation.
template <class A>
GPU_FN std::uint32_t pack_weights(float low, float high) {
  if constexpr (std::is_same_v<A, __half>)
    return gpu::value_of<__half2, std::uint32_t>(__floats2half2_rn(low, high));
  else
    return gpu::pack2<A>(low, high);
}

template <class A>
inline constexpr std::uint32_t kTwoOnes = std::is_same_v<A, __half> ? 0x3c003c00u : 0x3f803f80u;

GPU_FN int lane() { return static_cast<int>(threadIdx.x) & 31; }
GPU_FN int warp() { return static_cast<int>(threadIdx.x) >> 5; }

// Queries of 16 pairs as fragments of the left matrix, straight from global memory.
template <class A, int D>
struct QueryFragments {
  std::uint32_t part[D / 16][4];

  // Of pairs first + lane / 4 and first + lane / 4 + 8 of the tile.
  GPU_FN void load(const AttentionArgs& a, const AttentionWork& w, int first) {
    const int g = first + (lane() >> 2);
    const A* const q[2] = {static_cast<const A*>(a.q) + offset_of(a, w, g),
                           static_cast<const A*>(a.q) + offset_of(a, w, g + 8)};
    const bool valid[2] = {g < w.pairs, g + 8 < w.pairs};
#pragma unroll
    for (int k = 0; k < D / 16; k++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int dim = 16 * k + 8 * (i >> 1) + 2 * (lane() & 3);
        part[k][i] = valid[i & 1] && dim < a.dim ? gpu::load4<std::uint32_t>(q[i & 1] + dim) : 0;
      }
  }
};

// scores[n] += products of the queries with keys 8 n .. 8 n + 7 behind `keys`; N is even.
template <class A, int D, int N>
GPU_FN void multiply_keys(float (&scores)[N][4], const QueryFragments<A, D>& q, const A* keys) {
  constexpr int kRow = D + 8;
  const A* at = keys + ((lane() >> 4) * 8 + (lane() & 7)) * kRow + ((lane() >> 3) & 1) * 8;
#pragma unroll
  for (int k = 0; k < D / 16; k++)
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      std::uint32_t b[4];
      gpu::ldmatrix_x4(b, at + n * 8 * kRow + k * 16);
      mma<A>(scores[n], q.part[k], b[0], b[1]);
      mma<A>(scores[n + 1], q.part[k], b[2], b[3]);
    }
}

// Scales; a key past the row's position gets -infinity.
GPU_FN void finish_scores(float (&scores)[kSplitKeys / 8][4], const int (&position)[2], float scale,
                          int first_key, bool masked) {
#pragma unroll
  for (int n = 0; n < kSplitKeys / 8; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      // Never fused with the subtraction of the maximum: there is one rounding here on every path.
      scores[n][i] = __fmul_rn(scores[n][i], scale);
      const int key = first_key + 8 * n + 2 * (lane() & 3) + (i & 1);
      if (masked && key > position[i >> 1]) scores[n][i] = __uint_as_float(0xff800000u);
    }
}

// A split's weights as fragments of the left matrix, rounded to A.
template <class A>
struct Weights {
  std::uint32_t part[kSplitKeys / 16][4];
  float m[2], l[2];

  GPU_FN explicit Weights(const float (&scores)[kSplitKeys / 8][4]) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      m[r] = kNoScore;
#pragma unroll
      for (int n = 0; n < kSplitKeys / 8; n++)
        m[r] = fmaxf(m[r], fmaxf(scores[n][2 * r], scores[n][2 * r + 1]));
      m[r] = fmaxf(m[r], __shfl_xor_sync(0xffffffffu, m[r], 1));
      m[r] = fmaxf(m[r], __shfl_xor_sync(0xffffffffu, m[r], 2));
    }
#pragma unroll
    for (int k = 0; k < kSplitKeys / 16; k++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const float(&s)[4] = scores[2 * k + (i >> 1)];
        const int r = i & 1;
        part[k][i] = pack_weights<A>(gpu::exp2_approx(s[2 * r] - m[r]),
                                     gpu::exp2_approx(s[2 * r + 1] - m[r]));
      }
    // The sum of the rounded weights, in the tensor core's order like those of the values.
    float sum[4] = {};
#pragma unroll
    for (int k = 0; k < kSplitKeys / 16; k++) mma<A>(sum, part[k], kTwoOnes<A>, kTwoOnes<A>);
    l[0] = sum[0], l[1] = sum[2];
  }
};

// The result of 16 pairs so far, or of one split: Chunks of 16 dimensions each. acc[c][j][i]:
// element i of the fragment of dimensions 8 j .. of chunk c.
template <int Chunks>
struct Partial {
  float m[2], l[2], acc[Chunks][2][4];

  GPU_FN void clear() {
#pragma unroll
    for (int r = 0; r < 2; r++) m[r] = kNoScore, l[r] = 0;
#pragma unroll
    for (int c = 0; c < Chunks; c++)
#pragma unroll
      for (int i = 0; i < 8; i++) acc[c][i >> 2][i & 3] = 0;
  }
};

// Folds a split with these weights into `to`. Chunk c is dimensions 16 (first + c * step) .., as
// far as there are any.
template <class A, int D, int Chunks>
GPU_FN void add_split(Partial<Chunks>& to, const Weights<A>& w, const int (&position)[2],
                      int first_key, const A* values, int first, int step) {
  constexpr int kRow = D + 8;
  const Fold f[2] = {fold_of(to.m[0], w.m[0], first_key <= position[0]),
                     fold_of(to.m[1], w.m[1], first_key <= position[1])};
  const A* at = values + (((lane() >> 3) & 1) * 8 + (lane() & 7)) * kRow + (lane() >> 4) * 8;
#pragma unroll
  for (int c = 0; c < Chunks; c++) {
    const int chunk = first + c * step;
    if (chunk >= D / 16) continue;
    float sum[2][4] = {};
#pragma unroll
    for (int k = 0; k < kSplitKeys / 16; k++) {
      std::uint32_t b[4];
      gpu::ldmatrix_x4_trans(b, at + k * 16 * kRow + chunk * 16);
      mma<A>(sum[0], w.part[k], b[0], b[1]);
      mma<A>(sum[1], w.part[k], b[2], b[3]);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
      float& acc = to.acc[c][i >> 2][i & 3];
      acc = folded(acc, sum[i >> 2][i & 3], f[(i & 3) >> 1]);
    }
  }
#pragma unroll
  for (int r = 0; r < 2; r++) to.l[r] = folded(to.l[r], w.l[r], f[r]), to.m[r] = f[r].m;
}

}  // namespace cohort::cuda
