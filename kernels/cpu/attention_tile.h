// SPDX-License-Identifier: Apache-2.0
// One tile of attention: up to kPassRows rows over one split, written once over a vector type V.
// Lanes are tokens for scores and dimensions for values, so the vector width cannot change a bit.
// Included by one unit per instruction set, hence the unnamed namespace and no use of the standard
// library.
#pragma once
#include "kernels/cpu/attention_job.h"

#define COHORT_INLINE __attribute__((always_inline)) inline

namespace cohort {
namespace {

constexpr int kScoreStride = kSplit + 16;  // of a row of scores
constexpr int kMostScoreBlocks = 4;        // that a pass over queries takes at once

COHORT_INLINE int least(int a, int b) { return a < b ? a : b; }

// ---- elements of the KV memory as f32 lanes ----------------------------------------------------
// kScaled: what is loaded is an integer, whose token has a scale for its key and one for its value.
template <class V, bool scaled = false>
struct F32 {
  static constexpr int kBytes = 4;
  static constexpr bool kScaled = scaled;
  static COHORT_INLINE typename V::F load(const std::byte* p) {
    return V::load(reinterpret_cast<const float*>(p));
  }
};
template <class V>
struct Bf16 {
  static constexpr int kBytes = 2;
  static constexpr bool kScaled = false;
  static COHORT_INLINE typename V::F load(const std::byte* p) { return V::bf16(p); }
};
template <class V>
struct F16 {
  static constexpr int kBytes = 2;
  static constexpr bool kScaled = false;
  static COHORT_INLINE typename V::F load(const std::byte* p) { return V::f16(p); }
};
template <class V>
struct I8 {
  static constexpr int kBytes = 1;
  static constexpr bool kScaled = true;
  static COHORT_INLINE typename V::F load(const std::byte* p) { return V::i8(p); }
};

// Keys and values of one split, and of the one after it, to ask memory for meanwhile. A block past
// the last one repeats it: its lanes are computed and never looked at.
struct Split {
  const std::byte *k[kSplitBlocks + kMostScoreBlocks], *v[kSplitBlocks];
  const std::byte *next_k[kSplitBlocks + kMostScoreBlocks], *next_v[kSplitBlocks];
  const float* scales[kSplitBlocks + kMostScoreBlocks];  // int8: of 16 keys, then of 16 values
};

// ---- scores: R rows x B blocks of tokens in registers, one chain over dim per lane --------------
template <class V, class L, int R, int B>
COHORT_INLINE void score_blocks(const Split& split, int block, bool prefetch, const float* q,
                                int dim, float* out) {
  constexpr int kParts = kBlockLanes / V::kLanes, kWidth = B * kParts;
  constexpr int kRowBytes = kBlockLanes * L::kBytes;
  const std::byte* const* ahead = split.next_k + block;
  typename V::F acc[R][kWidth];
#pragma GCC unroll 16
  for (auto& row : acc)
#pragma GCC unroll 16
    for (auto& a : row) a = V::set1(0);
  const std::byte* at[B];
#pragma GCC unroll 4
  for (int b = 0; b < B; b++) at[b] = split.k[block + b];
  for (int d = 0; d < dim; d++) {
    typename V::F x[kWidth];
#pragma GCC unroll 8
    for (int i = 0; i < kWidth; i++)
      x[i] = L::load(at[i / kParts] + d * kRowBytes + i % kParts * V::kLanes * L::kBytes);
    if (prefetch && d * kRowBytes % 64 == 0)
#pragma GCC unroll 4
      for (int b = 0; b < B; b++) __builtin_prefetch(ahead[b] + d * kRowBytes, 0, 2);
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
      const auto y = V::set1(q[d * R + r]);
#pragma GCC unroll 8
      for (int i = 0; i < kWidth; i++) acc[r][i] = V::fma(y, x[i], acc[r][i]);
    }
  }
  if constexpr (L::kScaled) {
#pragma GCC unroll 8
    for (int i = 0; i < kWidth; i++) {
      const auto scale = V::load(split.scales[block + i / kParts] + i % kParts * V::kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < R; r++) acc[r][i] = V::mul(acc[r][i], scale);
    }
    if (prefetch)
#pragma GCC unroll 4
      for (int b = 0; b < B; b++)
        for (int line = 0; line < 2; line++)
          __builtin_prefetch(ahead[b] + 2 * dim * kRowBytes + line * 64, 0, 2);
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int i = 0; i < kWidth; i++) V::store(out + r * kScoreStride + i * V::kLanes, acc[r][i]);
}

// R: the tallest that rows can be.
template <class V, class L, int R = V::kTallest>
void scores(const Split& split, int rows, int blocks, bool prefetch, const float* q, int dim,
            float* out) {
  if constexpr (R > 1)
    if (rows < R) return scores<V, L, R - 1>(split, rows, blocks, prefetch, q, dim, out);
  constexpr int B = V::template kScoreBlocks<R>;
  static_assert(B <= kMostScoreBlocks);
  for (int b = 0; b < blocks; b += B)
    score_blocks<V, L, R, B>(split, b, prefetch, q, dim, out + b * kBlockLanes);
}

// ---- weights: scores of one row become 2^(score - maximum), in place ----------------------------
// Lanes past the last visible key never reach the maximum and weigh exactly 0, even if their memory
// holds NaN. Weights that meet integers take on the scales of the values, after they were added up.
template <class V>
COHORT_INLINE float largest_score(const float* s, int keys) {
  constexpr int kParts = kBlockLanes / V::kLanes;
  typename V::F max[kParts];
  for (auto& m : max) m = V::set1(kLowestScore);
  for (int j = 0; j < keys; j += kBlockLanes)
    for (int i = 0; i < kParts; i++) {
      const auto x = V::load(s + j + i * V::kLanes);
      max[i] = V::max(V::first(x, keys - j - i * V::kLanes, V::set1(kLowestScore)), max[i]);
    }
  return V::reduce_max(max);
}

template <class V, class L>
void weigh(const Split& split, float* s, int keys, float* max_out, float* weight_out) {
  constexpr int kParts = kBlockLanes / V::kLanes;
  typename V::F sum[kParts];
  for (auto& x : sum) x = V::set1(0);
  const float m = largest_score<V>(s, keys);
  for (int j = 0; j < keys; j += kBlockLanes)
    for (int i = 0; i < kParts; i++) {
      float* at = s + j + i * V::kLanes;
      auto p =
          V::first(V::exp2(V::sub(V::load(at), V::set1(m))), keys - j - i * V::kLanes, V::set1(0));
      sum[i] = V::add(sum[i], p);
      if constexpr (L::kScaled)
        p = V::mul(p, V::load(split.scales[j / kBlockLanes] + kBlockLanes + i * V::kLanes));
      V::store(at, p);
    }
  *max_out = m;
  *weight_out = V::reduce_add(sum);
}

// ---- values: R rows x W vectors of dimensions in registers, one chain over tokens per lane ------
template <class V, class L, int R, int W>
COHORT_INLINE void value_columns(const Split& split, int t0, int t1, const float* p, int dim,
                                 int d0, bool prefetch, float* acc_out, int stride) {
  typename V::F acc[R][W];
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int i = 0; i < W; i++) acc[r][i] = V::load(acc_out + r * stride + d0 + i * V::kLanes);
  for (int t = t0; t < t1;) {
    const int end = least(t1, (t / kBlockLanes + 1) * kBlockLanes);
    const std::byte* row =
        split.v[t / kBlockLanes] + int64_t(t % kBlockLanes * dim + d0) * L::kBytes;
    const std::byte* ahead = split.next_v[t / kBlockLanes] + int64_t(d0) * L::kBytes;
    for (; t < end; t++, row += dim * L::kBytes) {
      typename V::F x[W];
#pragma GCC unroll 8
      for (int i = 0; i < W; i++) x[i] = L::load(row + i * V::kLanes * L::kBytes);
      if (prefetch)
#pragma GCC unroll 4
        for (int i = 0; i < W * V::kLanes * L::kBytes; i += 64)
          __builtin_prefetch(ahead + t % kBlockLanes * dim * L::kBytes + i, 0, 2);
#pragma GCC unroll 8
      for (int r = 0; r < R; r++) {
        const auto y = V::set1(p[r * kScoreStride + t]);
#pragma GCC unroll 8
        for (int i = 0; i < W; i++) acc[r][i] = V::fma(y, x[i], acc[r][i]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int i = 0; i < W; i++) V::store(acc_out + r * stride + d0 + i * V::kLanes, acc[r][i]);
}

// Dimensions [d, d + W vectors): all rows together up to the fewest keys that any of them sees,
// then each on its own. A key that a row must not see never touches it, so neither its sign of zero
// nor a NaN in memory can depend on the company it was computed in.
template <class V, class L, int R, int W>
COHORT_INLINE void values_at(const Split& split, const int* keys, int common, const float* p,
                             int dim, int d, bool prefetch, float* acc, int stride) {
  value_columns<V, L, R, W>(split, 0, common, p, dim, d, prefetch, acc, stride);
  for (int r = 0; r < R; r++)
    if (keys[r] > common)
      value_columns<V, L, 1, W>(split, common, keys[r], p + r * kScoreStride, dim, d, false,
                                acc + r * stride, stride);
}

// R: the most that rows can be.
template <class V, class L, int R = V::kValueRows>
void values(const Split& split, int rows, const int* keys, const float* p, int dim, bool prefetch,
            float* acc, int stride) {
  if constexpr (R > 1)
    if (rows < R) return values<V, L, R - 1>(split, rows, keys, p, dim, prefetch, acc, stride);
  constexpr int W = V::kValueVectors;
  int common = keys[0], d = 0;
  for (int r = 1; r < R; r++) common = least(common, keys[r]);
  for (; d + W * V::kLanes <= dim; d += W * V::kLanes)
    values_at<V, L, R, W>(split, keys, common, p, dim, d, prefetch, acc, stride);
  for (; d < dim; d += V::kLanes)
    values_at<V, L, R, 1>(split, keys, common, p, dim, d, prefetch, acc, stride);
}

// How many of the remaining rows the next tile takes.
template <class V>
int tile_rows(int rows) {
  if (rows <= V::kTallest) return rows;
  return rows < 2 * V::kTallest ? (rows + 1) / 2 : V::kTallest;
}

// All rows over the split: partial results [row][stride], each sums [dim], maximum, weight. keys:
// how many of the split each row sees, ascending. q: [dim][row].
template <class V, class L>
void tile(const AttentionShape& g, const Split& s, const float* q, int rows, const int* keys,
          bool prefetch, float* score, float* to) {
  const int blocks = (keys[rows - 1] + kBlockLanes - 1) / kBlockLanes;  // the last row sees most
  scores<V, L>(s, rows, blocks, prefetch, q, g.dim, score);
  for (int r = 0; r < rows; r++) {
    float* sums = to + r * g.stride;
    weigh<V, L>(s, score + r * kScoreStride, keys[r], sums + g.dim, sums + g.dim + 1);
    for (int d = 0; d < g.dim; d++) sums[d] = 0;
  }
  for (int r = 0; r < rows;) {
    const int n = least(rows - r, V::kValueRows);
    values<V, L>(s, n, keys + r, score + r * kScoreStride, g.dim, prefetch && r == 0,
                 to + r * g.stride, g.stride);
    r += n;
  }
}

}  // namespace
}  // namespace cohort
