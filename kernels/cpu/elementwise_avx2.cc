// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/exp2.h"
#include "kernels/cpu/exp2_avx2.h"

namespace cohort {
namespace {

__attribute__((always_inline)) inline __m256 silu_mul_vector(__m256 x, __m256 up) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  const __m256 minus_magnitude = _mm256_or_ps(x, sign);
  const __m256 e = exp2_vector(_mm256_mul_ps(minus_magnitude, _mm256_set1_ps(kLog2e)));
  const __m256 negative = _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ);
  const __m256 top = _mm256_blendv_ps(x, _mm256_mul_ps(x, e), negative);
  return _mm256_mul_ps(_mm256_div_ps(top, _mm256_add_ps(_mm256_set1_ps(1), e)), up);
}

}  // namespace

void silu_mul_avx2(float* out, const float* gate, const float* up, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(out + i, silu_mul_vector(_mm256_loadu_ps(gate + i), _mm256_loadu_ps(up + i)));
  silu_mul_portable(out + i, gate + i, up + i, n - i);
}

void weigh_avx2(float* out, const float* x, float top, float scale, int64_t n) {
  const __m256 tops = _mm256_set1_ps(top), scales = _mm256_set1_ps(scale);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 below = _mm256_sub_ps(_mm256_loadu_ps(x + i), tops);
    _mm256_storeu_ps(out + i, exp2_vector(_mm256_mul_ps(below, scales)));
  }
  weigh_portable(out + i, x + i, top, scale, n - i);
}

}  // namespace cohort
