// SPDX-License-Identifier: Apache-2.0
// One tile of attention in bf16 arithmetic (docs/arithmetic.md section 9): two chains a sum, of
// which registers hold kPairVectors<rows> vectors for each row. Otherwise as attention_tile.h.
#pragma once
#include <immintrin.h>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/round_bf16.h"

namespace cohort {
namespace {

constexpr int kChainLength = 32;  // dimensions, or keys, of two chains

// Even and odd elements of R rows by N vectors.
template <class V, int R, int N>
struct Chains {
  typename V::F of[2][R][N];

  COHORT_INLINE void clear() {
#pragma GCC unroll 2
    for (auto& chain : of)
#pragma GCC unroll 16
      for (auto& row : chain)
#pragma GCC unroll 4
        for (auto& x : row) x = V::set1(0);
  }
  // To N vectors of memory of row r; fresh: they count as zeros.
  COHORT_INLINE void add_to(float* out, int r, bool fresh) const {
#pragma GCC unroll 4
    for (int i = 0; i < N; i++, out += V::kLanes)
      V::store(out, V::add(fresh ? V::set1(0) : V::load(out), V::add(of[0][r][i], of[1][r][i])));
  }
};

// ---- scores: R rows x N vectors of tokens, the first one being `vector` of the split ------------
template <class V, class L, int R, int N>
COHORT_INLINE void score_pairs(const Split& split, int vector, bool prefetch, const float* q,
                               int dim, float* out) {
  constexpr int kParts = kBlockLanes / V::kLanes, kRowBytes = kBlockLanes * L::kBytes;
  const std::byte* at[N];
#pragma GCC unroll 4
  for (int i = 0; i < N; i++)
    at[i] = split.k[(vector + i) / kParts] + (vector + i) % kParts * V::kLanes * L::kBytes;
  for (int d0 = 0; d0 < dim; d0 += kChainLength) {
    Chains<V, R, N> sums;
    sums.clear();
    for (int d = d0; d < least(d0 + kChainLength, dim); d += 2) {  // dim is a multiple of 8
      if (prefetch)
#pragma GCC unroll 4
        for (int i = 0; i < N; i++)
          if ((vector + i) % kParts == 0)
            __builtin_prefetch(split.next_k[(vector + i) / kParts] + d * kRowBytes, 0, 2);
#pragma GCC unroll 2
      for (int odd = 0; odd < 2; odd++) {
        typename V::F x[N];
#pragma GCC unroll 4
        for (int i = 0; i < N; i++) x[i] = L::load(at[i] + (d + odd) * kRowBytes);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
          const auto y = V::set1(q[(d + odd) * R + r]);
#pragma GCC unroll 4
          for (int i = 0; i < N; i++) sums.of[odd][r][i] = V::fma(y, x[i], sums.of[odd][r][i]);
        }
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) sums.add_to(out + r * kScoreStride, r, d0 == 0);
  }
}

// R: the tallest that rows can be.
template <class V, class L, int R = V::kTallest>
void bf16_scores(const Split& split, int rows, int blocks, bool prefetch, const float* q, int dim,
                 float* out) {
  if constexpr (R > 1)
    if (rows < R) return bf16_scores<V, L, R - 1>(split, rows, blocks, prefetch, q, dim, out);
  constexpr int N = V::template kPairVectors<R>, kParts = kBlockLanes / V::kLanes;
  static_assert(N <= kMostScoreBlocks * kParts);
  for (int v = 0; v < blocks * kParts; v += N)
    score_pairs<V, L, R, N>(split, v, prefetch, q, dim, out + v * V::kLanes);
}

// ---- weights: as weigh(), but rounded to bf16 before they are added up --------------------------
template <class V>
void bf16_weigh(float* s, int keys, float* max_out, float* weight_out) {
  constexpr int kParts = kBlockLanes / V::kLanes;
  const float m = largest_score<V>(s, keys);
  for (int j = 0; j < keys; j += V::kLanes)
    V::store(s + j, V::exp2(V::sub(V::load(s + j), V::set1(m))));
  for (int j = 0; j < keys; j++) s[j] = rounded_to_bf16(s[j]);
  typename V::F sum[kParts];
  for (auto& x : sum) x = V::set1(0);
  for (int j = 0; j < keys; j += kBlockLanes)
    for (int i = 0; i < kParts; i++) {
      const int at = j + i * V::kLanes;
      sum[i] = V::add(sum[i], V::first(V::load(s + at), keys - at, V::set1(0)));
    }
  *max_out = m;
  *weight_out = V::reduce_add(sum);
}

// ---- values: R rows x W vectors of dimensions ---------------------------------------------------

// Key t, whose element d0 is at `row`. keys: null where all rows see it.
template <class V, class L, int R, int W>
COHORT_INLINE void value_key(typename V::F (&chain)[R][W], const std::byte* row, const float* p,
                             int t, const int* keys) {
  typename V::F x[W];
#pragma GCC unroll 4
  for (int i = 0; i < W; i++) x[i] = L::load(row + i * V::kLanes * L::kBytes);
#pragma GCC unroll 8
  for (int r = 0; r < R; r++) {
    if (keys && t >= keys[r]) continue;
    const auto y = V::set1(p[r * kScoreStride + t]);
#pragma GCC unroll 4
    for (int i = 0; i < W; i++) chain[r][i] = V::fma(y, x[i], chain[r][i]);
  }
}

// The keys [t, end) of two chains.
template <class V, class L, int R, int W>
COHORT_INLINE void value_chains(const Split& split, int t, int end, const int* keys, const float* p,
                                int dim, int d0, bool prefetch, Chains<V, R, W>& sums) {
  while (t < end) {
    const int block = t / kBlockLanes, last = least(end, (block + 1) * kBlockLanes);
    const int64_t step = int64_t(dim) * L::kBytes;
    const std::byte* row = split.v[block] + int64_t(d0) * L::kBytes;
    const std::byte* ahead = split.next_v[block] + int64_t(d0) * L::kBytes;
    for (; t + 1 < last; t += 2, row += 2 * step, ahead += 2 * step) {
      if (prefetch)
#pragma GCC unroll 4
        for (int i = 0; i < W * V::kLanes * L::kBytes; i += 64) {
          __builtin_prefetch(ahead + i, 0, 2);
          __builtin_prefetch(ahead + step + i, 0, 2);
        }
      value_key<V, L, R, W>(sums.of[0], row, p, t, keys);
      value_key<V, L, R, W>(sums.of[1], row + step, p, t + 1, keys);
    }
    if (t < last) value_key<V, L, R, W>(sums.of[0], row, p, t++, keys);
  }
}

// Keys [begin, end), begin being where chains begin. keys: null where all rows see all of them,
// else how many a row sees; a key that a row must not see takes no part in its chains, and where it
// sees none of them nothing is added: not even zeros, which could change the sign of one.
template <class V, class L, int R, int W>
COHORT_INLINE void value_pairs(const Split& split, int begin, int end, const int* keys,
                               const float* p, int dim, int d0, bool prefetch, float* acc,
                               int stride) {
  for (int t = begin; t < end; t += kChainLength) {
    Chains<V, R, W> sums;
    sums.clear();
    value_chains<V, L, R, W>(split, t, least(t + kChainLength, end), keys, p, dim, d0, prefetch,
                             sums);
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
      if (!keys || t < keys[r]) sums.add_to(acc + r * stride + d0, r, false);
  }
}

// keys: ascending.
template <class V, class L, int R, int W>
void bf16_values_at(const Split& split, const int* keys, const float* p, int dim, int d,
                    bool prefetch, float* acc, int stride) {
  const int most = keys[R - 1];
  const int common = keys[0] == most ? most : keys[0] / kChainLength * kChainLength;
  value_pairs<V, L, R, W>(split, 0, common, nullptr, p, dim, d, prefetch, acc, stride);
  if constexpr (R > 1)
    if (common < most)
      value_pairs<V, L, R, W>(split, common, most, keys, p, dim, d, false, acc, stride);
}

// R: the most that rows can be.
template <class V, class L, int R = V::kValueRows>
void bf16_values(const Split& split, int rows, const int* keys, const float* p, int dim,
                 bool prefetch, float* acc, int stride) {
  if constexpr (R > 1)
    if (rows < R) return bf16_values<V, L, R - 1>(split, rows, keys, p, dim, prefetch, acc, stride);
  constexpr int W = V::template kPairVectors<R>;
  int d = 0;
  for (; d + W * V::kLanes <= dim; d += W * V::kLanes)
    bf16_values_at<V, L, R, W>(split, keys, p, dim, d, prefetch, acc, stride);
  if constexpr (W > 1)
    for (; d < dim; d += V::kLanes)
      bf16_values_at<V, L, R, 1>(split, keys, p, dim, d, prefetch, acc, stride);
}

template <class V, class L>
__attribute__((noinline)) void bf16_tile_sums(const AttentionShape& g, const Split& s,
                                              const float* q, int rows, const int* keys,
                                              bool prefetch, float* score, float* to) {
  const int blocks = (keys[rows - 1] + kBlockLanes - 1) / kBlockLanes;  // the last row sees most
  bf16_scores<V, L>(s, rows, blocks, prefetch, q, g.dim, score);
  for (int r = 0; r < rows; r++) {
    float* sums = to + r * g.stride;
    bf16_weigh<V>(score + r * kScoreStride, keys[r], sums + g.dim, sums + g.dim + 1);
    for (int d = 0; d < g.dim; d++) sums[d] = 0;
  }
  for (int r = 0; r < rows;) {
    const int n = least(rows - r, V::kValueRows);
    bf16_values<V, L>(s, n, keys + r, score + r * kScoreStride, g.dim, prefetch && r == 0,
                      to + r * g.stride, g.stride);
    r += n;
  }
}

// Denormals are flushed while it lives: FTZ and DAZ, Intel SDM volume 1, 10.2.3. The compiler does
// not know what floating point depends on, so that it must be in functions that are called.
class Flushing {
 public:
  COHORT_INLINE Flushing() : mode_(_mm_getcsr()) { _mm_setcsr(mode_ | 1u << 15 | 1u << 6); }
  COHORT_INLINE ~Flushing() { _mm_setcsr(mode_); }
  Flushing(const Flushing&) = delete;
  Flushing& operator=(const Flushing&) = delete;

 private:
  unsigned mode_;
};

// tile() with denormals flushed. Weights lie between 2^-64 and 1 or are 0, and what a denormal
// difference of scores is, their exponential is 1: so it does not matter that the mode is set there
// too.
template <class V, class L>
void bf16_tile(const AttentionShape& g, const Split& s, const float* q, int rows, const int* keys,
               bool prefetch, float* score, float* to) {
  const Flushing flushing;
  bf16_tile_sums<V, L>(g, s, q, rows, keys, prefetch, score, to);
}

// The values of one row, flushed, from zero.
template <class V, class L>
__attribute__((noinline)) void bf16_row_values(const Split& s, int keys, const float* p, int dim,
                                               float* sums) {
  for (int d = 0; d < dim; d++) sums[d] = 0;
  bf16_values<V, L, 1>(s, 1, &keys, p, dim, false, sums, 0);
}

}  // namespace
}  // namespace cohort
