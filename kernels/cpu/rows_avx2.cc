// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "kernels/cpu/rows.h"

namespace cohort {
namespace {

// 16 lanes: 0 .. 7 and 8 .. 15.
struct Lanes {
  __m256 low, high;
};

inline Lanes load(const float* x) { return {_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)}; }
inline void store(float* x, Lanes v) {
  _mm256_storeu_ps(x, v.low);
  _mm256_storeu_ps(x + 8, v.high);
}
inline Lanes add(Lanes a, Lanes b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}

// Fewer than 16 elements; the other lanes are `rest`.
inline Lanes load_some(const float* x, int64_t n, float rest) {
  alignas(32) float all[16];
  for (int i = 0; i < 16; i++) all[i] = rest;
  for (int64_t i = 0; i < n; i++) all[i] = x[i];
  return load(all);
}

// Lanes 8, 4, 2 and 1 apart.
inline float sum_lanes(Lanes v) {
  const __m256 eight = _mm256_add_ps(v.low, v.high);
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

inline uint32_t largest_lane(__m256i v) {
  __m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
  return uint32_t(_mm_cvtsi128_si32(_mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1))));
}

struct Sums {
  Lanes squares{_mm256_setzero_ps(), _mm256_setzero_ps()};
  __m256i largest = _mm256_setzero_si256();

  // Lanes that are 0 change nothing: no sum of squares is -0.
  void take(Lanes x) {
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    squares = add(squares, {_mm256_mul_ps(x.low, x.low), _mm256_mul_ps(x.high, x.high)});
    largest = _mm256_max_epu32(largest, _mm256_and_si256(_mm256_castps_si256(x.low), magnitude));
    largest = _mm256_max_epu32(largest, _mm256_and_si256(_mm256_castps_si256(x.high), magnitude));
  }
  RowSums result() const { return {sum_lanes(squares), largest_lane(largest)}; }
};

}  // namespace

RowSums measure_row_avx2(const float* x, int64_t n) {
  Sums sums;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) sums.take(load(x + i));
  if (i < n) sums.take(load_some(x + i, n - i, 0));
  return sums.result();
}

RowSums add_row_avx2(float* x, const float* y, int64_t n) {
  Sums sums;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const Lanes sum = add(load(x + i), load(y + i));
    store(x + i, sum);
    sums.take(sum);
  }
  if (i < n) {
    for (int64_t j = i; j < n; j++) x[j] += y[j];
    sums.take(load_some(x + i, n - i, 0));
  }
  return sums.result();
}

void scale_row_avx2(float* out, const float* x, float scale, const float* weight, int64_t n) {
  const __m256 scales = _mm256_set1_ps(scale);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x + i), scales);
    _mm256_storeu_ps(out + i, _mm256_mul_ps(scaled, _mm256_loadu_ps(weight + i)));
  }
  for (; i < n; i++) out[i] = x[i] * scale * weight[i];
}

bool lane_maxima_avx2(float* maxima, const float* x, int64_t n) {
  const __m256 lowest = _mm256_set1_ps(-__builtin_inff());
  __m256 nan = _mm256_setzero_ps();
  for (int64_t begin = 0; begin < n; begin += kVocabBlock, maxima += kVocabLanes) {
    Lanes largest{lowest, lowest};
    // Of NaN and a number the second operand is the result.
    const auto take = [&](Lanes v) {
      largest = {_mm256_max_ps(v.low, largest.low), _mm256_max_ps(v.high, largest.high)};
      nan = _mm256_or_ps(nan, _mm256_cmp_ps(v.low, v.high, _CMP_UNORD_Q));
    };
    const int64_t end = begin + kVocabBlock < n ? begin + kVocabBlock : n;
    int64_t i = begin;
    for (; i + 16 <= end; i += 16) take(load(x + i));
    if (i < end) take(load_some(x + i, end - i, -__builtin_inff()));
    store(maxima, largest);
  }
  return _mm256_movemask_ps(nan) != 0;
}

void block_sums_avx2(double* sums, const float* x, int64_t n) {
  for (int64_t begin = 0; begin < n; begin += kVocabBlock) {
    Lanes sum{_mm256_setzero_ps(), _mm256_setzero_ps()};
    const int64_t end = begin + kVocabBlock < n ? begin + kVocabBlock : n;
    int64_t i = begin;
    for (; i + 16 <= end; i += 16) sum = add(sum, load(x + i));
    if (i < end) sum = add(sum, load_some(x + i, end - i, 0));
    *sums++ = double(sum_lanes(sum));
  }
}

}  // namespace cohort
