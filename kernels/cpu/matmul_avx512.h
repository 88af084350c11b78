// SPDX-License-Identifier: Apache-2.0
// What the two AVX-512 units of matmul share.
#pragma once
#include <immintrin.h>

#include "kernels/cpu/matmul_job.h"
#include "kernels/packed.h"

namespace cohort {

// Plain weights, and quantised ones in ActivationMode::f32.
MatmulPanels matmul_plain_avx512;

namespace {

// Outputs of a panel that exist: the last one may be short.
__attribute__((always_inline)) inline __mmask16 lanes_of(const MatmulJob& job, int64_t panel) {
  const int64_t left = job.n - panel * 16;
  return left < 16 ? __mmask16((1u << left) - 1) : __mmask16(0xffff);
}

// Sixteen f16 numbers, and sixteen integers.
__attribute__((always_inline)) inline __m512 sixteen_halves(const std::byte* p) {
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
}
__attribute__((always_inline)) inline __m512 sixteen_bytes(const std::byte* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(p))));
}

// Of a block, all lanes.
template <QuantForm F>
struct BlockScales {
  __m512 scale[F.halves ? 2 : 1];  // [half of the columns]
  __m512 minimum;                  // if the form has minima

  __attribute__((always_inline)) inline BlockScales(const PanelShape& shape, const std::byte* panel,
                                                    int64_t b) {
    const std::byte* record = panel + record_at(F, shape, b);
    scale[0] = sixteen_halves(record);
    if constexpr (F.minimum) minimum = sixteen_halves(record + 32);
    if constexpr (F.super) {
      const std::byte* factors = record + factors_at(F, int(b % record_blocks(F)));
      const __m512 second = sixteen_bytes(factors + 16);
      if constexpr (F.halves) scale[1] = _mm512_mul_ps(scale[0], second);
      if constexpr (F.minimum) minimum = _mm512_mul_ps(minimum, second);
      scale[0] = _mm512_mul_ps(scale[0], sixteen_bytes(factors));
    }
  }
};

}  // namespace
}  // namespace cohort
