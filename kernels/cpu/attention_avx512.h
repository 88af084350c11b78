// SPDX-License-Identifier: Apache-2.0
// The vector type of sixteen lanes for attention_vector.h. Only for units compiled with AVX-512.
#pragma once
#include <immintrin.h>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/exp2_avx512.h"

namespace cohort {
namespace {

struct Avx512 {
  using F = __m512;
  static constexpr int kLanes = 16, kTallest = 12, kValueRows = 6, kValueVectors = 4;
  template <int R>
  static constexpr int kScoreBlocks = R > 6 ? 2 : 4;  // 24 accumulators at most, of 32 registers
  template <int R>
  static constexpr int kPairVectors = R > 6   ? 1
                                      : R > 3 ? 2
                                              : 4;  // the same, of two chains each

  static COHORT_INLINE F load(const float* p) { return _mm512_loadu_ps(p); }
  static COHORT_INLINE void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static COHORT_INLINE F set1(float x) { return _mm512_set1_ps(x); }
  static COHORT_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static COHORT_INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
  static COHORT_INLINE F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static COHORT_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static COHORT_INLINE F max(F a, F b) { return _mm512_max_ps(a, b); }  // b if either is NaN
  static COHORT_INLINE F exp2(F x) { return exp2_vector(x); }
  static COHORT_INLINE float lane0(F x) { return _mm512_cvtss_f32(x); }
  static COHORT_INLINE __m256i halves(const std::byte* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static COHORT_INLINE F bf16(const std::byte* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves(p)), 16));
  }
  // The upper halves: what is rounded to bf16 loses nothing.
  static COHORT_INLINE void store_halves(uint16_t* p, F x) {
    const __m512i upper = _mm512_srli_epi32(_mm512_castps_si512(x), 16);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(upper));
  }
  static COHORT_INLINE F f16(const std::byte* p) { return _mm512_cvtph_ps(halves(p)); }
  static COHORT_INLINE F i8(const std::byte* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
  }
  // The first n lanes of x, the rest of `rest`.
  static COHORT_INLINE F first(F x, int n, F rest) {
    if (n >= kLanes) return x;
    return _mm512_mask_mov_ps(rest, __mmask16((1u << (n < 0 ? 0 : n)) - 1), x);
  }
  static COHORT_INLINE F one_nan(F x) {
    return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), set1(__builtin_nanf("")));
  }
  static COHORT_INLINE float reduce_max(const F (&x)[1]) {
    const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(x[0]), _mm512_extractf32x8_ps(x[0], 1));
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
  }
  static COHORT_INLINE float reduce_add(const F (&x)[1]) {  // lanes 8, 4, 2 and 1 apart
    const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x[0]), _mm512_extractf32x8_ps(x[0], 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
  }
};

}  // namespace
}  // namespace cohort
