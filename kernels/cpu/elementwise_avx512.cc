// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/elementwise.h"

#include <immintrin.h>

#include "kernels/cpu/exp2_avx512.h"

namespace cohort {
namespace {

__attribute__((always_inline)) inline __m512 silu_mul_vector(__m512 x, __m512 up) {
  const __m512 minus_magnitude = _mm512_or_ps(x, _mm512_set1_ps(-0.0f));
  const __m512 e = exp2_vector(_mm512_mul_ps(minus_magnitude, _mm512_set1_ps(kLog2e)));
  const __mmask16 negative = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
  const __m512 top = _mm512_mask_mul_ps(x, negative, x, e);
  return _mm512_mul_ps(_mm512_div_ps(top, _mm512_add_ps(_mm512_set1_ps(1), e)), up);
}

// Lanes that are left of n at i; the others are neither read nor written.
__attribute__((always_inline)) inline __mmask16 lanes(int64_t i, int64_t n) {
  return n - i >= 16 ? __mmask16(0xffff) : __mmask16((1u << (n - i)) - 1);
}

}  // namespace

void silu_mul_avx512(float* out, const float* gate, const float* up, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 m = lanes(i, n);
    _mm512_mask_storeu_ps(
        out + i, m,
        silu_mul_vector(_mm512_maskz_loadu_ps(m, gate + i), _mm512_maskz_loadu_ps(m, up + i)));
  }
}

void weigh_avx512(float* out, const float* x, float top, float scale, int64_t n) {
  const __m512 tops = _mm512_set1_ps(top), scales = _mm512_set1_ps(scale);
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 m = lanes(i, n);
    const __m512 below = _mm512_sub_ps(_mm512_maskz_loadu_ps(m, x + i), tops);
    _mm512_mask_storeu_ps(out + i, m, exp2_vector(_mm512_mul_ps(below, scales)));
  }
}

}  // namespace cohort
