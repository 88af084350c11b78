// SPDX-License-Identifier: Apache-2.0
// The vector type of eight lanes for attention_vector.h. Only for units compiled with AVX2.
#pragma once
#include <immintrin.h>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/exp2_avx2.h"

namespace cohort {
namespace {

struct Avx2 {
  using F = __m256;
  static constexpr int kLanes = 8, kTallest = 6, kValueRows = 3, kValueVectors = 4;
  template <int R>
  static constexpr int kScoreBlocks = R > 3 ? 1 : 2;  // 12 accumulators at most, of 16 registers
  template <int R>
  static constexpr int kPairVectors = R > 3   ? 1
                                      : R > 1 ? 2
                                              : 4;  // the same, of two chains each

  static COHORT_INLINE F load(const float* p) { return _mm256_loadu_ps(p); }
  static COHORT_INLINE void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static COHORT_INLINE F set1(float x) { return _mm256_set1_ps(x); }
  static COHORT_INLINE F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static COHORT_INLINE F add(F a, F b) { return _mm256_add_ps(a, b); }
  static COHORT_INLINE F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static COHORT_INLINE F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static COHORT_INLINE F max(F a, F b) { return _mm256_max_ps(a, b); }  // b if either is NaN
  static COHORT_INLINE F exp2(F x) { return exp2_vector(x); }
  static COHORT_INLINE float lane0(F x) { return _mm256_cvtss_f32(x); }
  static COHORT_INLINE __m128i halves(const std::byte* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  static COHORT_INLINE F bf16(const std::byte* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves(p)), 16));
  }
  // The upper halves: what is rounded to bf16 loses nothing.
  static COHORT_INLINE void store_halves(uint16_t* p, F x) {
    const __m256i upper = _mm256_srli_epi32(_mm256_castps_si256(x), 16);
    const __m128i both =
        _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), both);
  }
  static COHORT_INLINE F f16(const std::byte* p) { return _mm256_cvtph_ps(halves(p)); }
  static COHORT_INLINE F i8(const std::byte* p) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  }
  // The first n lanes of x, the rest of `rest`.
  static COHORT_INLINE F first(F x, int n, F rest) {
    if (n >= kLanes) return x;
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i below = _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane);
    return _mm256_blendv_ps(rest, x, _mm256_castsi256_ps(below));
  }
  static COHORT_INLINE F one_nan(F x) {
    return _mm256_blendv_ps(x, set1(__builtin_nanf("")), _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  }
  static COHORT_INLINE float reduce_max(const F (&x)[2]) {
    const __m256 a = max(x[0], x[1]);
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
  }
  static COHORT_INLINE float reduce_add(const F (&x)[2]) {  // lanes 8, 4, 2 and 1 apart
    const __m256 a = _mm256_add_ps(x[0], x[1]);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
  }
};

}  // namespace
}  // namespace cohort
