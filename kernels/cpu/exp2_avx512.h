// SPDX-License-Identifier: Apache-2.0
// exp2_not_positive of sixteen lanes. Only for units compiled with AVX-512.
#pragma once
#include <immintrin.h>

#include "kernels/cpu/exp2.h"

namespace cohort {
namespace {

__attribute__((always_inline)) inline __m512 exp2_vector(__m512 x) {
  const __m512 shift = _mm512_set1_ps(kExpShift), shifted = _mm512_add_ps(x, shift);
  const __m512 f = _mm512_sub_ps(x, _mm512_sub_ps(shifted, shift));
  __m512 y = _mm512_set1_ps(kExpPoly[0]);
#pragma GCC unroll 6
  for (int i = 1; i < 7; i++) y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(kExpPoly[i]));
  const __m512i power = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
  // Not below, so that NaN passes through.
  const __mmask16 kept = _mm512_cmp_ps_mask(x, _mm512_set1_ps(kExpLowest), _CMP_NLT_UQ);
  return _mm512_maskz_mul_ps(kept, y, _mm512_castsi512_ps(power));
}

}  // namespace
}  // namespace cohort
