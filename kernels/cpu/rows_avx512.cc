// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "kernels/cpu/rows.h"

namespace cohort {
namespace {

// Of the first n lanes; n < 16.
inline __mmask16 first_lanes(int64_t n) { return __mmask16((1u << n) - 1); }

// Lanes 8, 4, 2 and 1 apart.
inline float sum_lanes(__m512 v) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

struct Sums {
  __m512 squares = _mm512_setzero_ps();
  __m512i largest = _mm512_setzero_si512();

  // Lanes that are 0 change nothing: no sum of squares is -0.
  void take(__m512 x) {
    squares = _mm512_add_ps(squares, _mm512_mul_ps(x, x));
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    largest = _mm512_max_epu32(largest, _mm512_and_si512(_mm512_castps_si512(x), magnitude));
  }
  RowSums result() const { return {sum_lanes(squares), _mm512_reduce_max_epu32(largest)}; }
};

}  // namespace

RowSums measure_row_avx512(const float* x, int64_t n) {
  Sums sums;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) sums.take(_mm512_loadu_ps(x + i));
  if (i < n) sums.take(_mm512_maskz_loadu_ps(first_lanes(n - i), x + i));
  return sums.result();
}

RowSums add_row_avx512(float* x, const float* y, int64_t n) {
  Sums sums;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m512 sum = _mm512_add_ps(_mm512_loadu_ps(x + i), _mm512_loadu_ps(y + i));
    _mm512_storeu_ps(x + i, sum);
    sums.take(sum);
  }
  if (i < n) {
    const __mmask16 some = first_lanes(n - i);
    const __m512 sum =
        _mm512_add_ps(_mm512_maskz_loadu_ps(some, x + i), _mm512_maskz_loadu_ps(some, y + i));
    _mm512_mask_storeu_ps(x + i, some, sum);
    sums.take(sum);
  }
  return sums.result();
}

void scale_row_avx512(float* out, const float* x, float scale, const float* weight, int64_t n) {
  const __m512 scales = _mm512_set1_ps(scale);
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 some = n - i < 16 ? first_lanes(n - i) : __mmask16(0xffff);
    const __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(some, x + i), scales);
    const __m512 weights = _mm512_maskz_loadu_ps(some, weight + i);
    _mm512_mask_storeu_ps(out + i, some, _mm512_mul_ps(scaled, weights));
  }
}

bool lane_maxima_avx512(float* maxima, const float* x, int64_t n) {
  const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
  __mmask16 nan = 0;
  for (int64_t begin = 0; begin < n; begin += kVocabBlock, maxima += kVocabLanes) {
    __m512 largest = lowest;
    const int64_t end = begin + kVocabBlock < n ? begin + kVocabBlock : n;
    int64_t i = begin;
    // Of NaN and a number the second operand of max is the result.
    for (; i + 16 <= end; i += 16) {
      const __m512 v = _mm512_loadu_ps(x + i);
      largest = _mm512_max_ps(v, largest);
      nan |= _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    }
    if (i < end) {
      const __m512 v = _mm512_mask_loadu_ps(lowest, first_lanes(end - i), x + i);
      largest = _mm512_max_ps(v, largest);
      nan |= _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    }
    _mm512_storeu_ps(maxima, largest);
  }
  return nan != 0;
}

void block_sums_avx512(double* sums, const float* x, int64_t n) {
  for (int64_t begin = 0; begin < n; begin += kVocabBlock) {
    __m512 sum = _mm512_setzero_ps();
    const int64_t end = begin + kVocabBlock < n ? begin + kVocabBlock : n;
    int64_t i = begin;
    for (; i + 16 <= end; i += 16) sum = _mm512_add_ps(sum, _mm512_loadu_ps(x + i));
    if (i < end) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(first_lanes(end - i), x + i));
    *sums++ = double(sum_lanes(sum));
  }
}

}  // namespace cohort
