// SPDX-License-Identifier: Apache-2.0
// exp2_not_positive of eight lanes. Only for units compiled with AVX2.
#pragma once
#include <immintrin.h>

#include "kernels/cpu/exp2.h"

namespace cohort {
namespace {

__attribute__((always_inline)) inline __m256 exp2_vector(__m256 x) {
  const __m256 shift = _mm256_set1_ps(kExpShift), shifted = _mm256_add_ps(x, shift);
  const __m256 f = _mm256_sub_ps(x, _mm256_sub_ps(shifted, shift));
  __m256 y = _mm256_set1_ps(kExpPoly[0]);
#pragma GCC unroll 6
  for (int i = 1; i < 7; i++) y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(kExpPoly[i]));
  const __m256i power = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
  // Not below, so that NaN passes through.
  const __m256 kept = _mm256_cmp_ps(x, _mm256_set1_ps(kExpLowest), _CMP_NLT_UQ);
  return _mm256_and_ps(kept, _mm256_mul_ps(y, _mm256_castsi256_ps(power)));
}

}  // namespace
}  // namespace cohort
