// SPDX-License-Identifier: Apache-2.0
// What the two AVX2 units of matmul share.
#pragma once
#include <immintrin.h>

#include "kernels/cpu/matmul_job.h"
#include "kernels/packed.h"

namespace cohort {

// Plain weights, and quantised ones in ActivationMode::f32.
MatmulPanels matmul_plain_avx2;

namespace {

// Both halves of a panel's outputs for one row of x.
__attribute__((always_inline)) inline void store_lanes(float* y, __m256 low, __m256 high,
                                                       int lanes) {
  if (lanes == 16) {
    _mm256_storeu_ps(y, low);
    _mm256_storeu_ps(y + 8, high);
    return;
  }
  float all[16];
  _mm256_storeu_ps(all, low);
  _mm256_storeu_ps(all + 8, high);
  for (int i = 0; i < lanes; i++) y[i] = all[i];
}

// Eight f16 numbers, and eight integers.
__attribute__((always_inline)) inline __m256 eight_halves(const std::byte* p) {
  return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
}
__attribute__((always_inline)) inline __m256 eight_bytes(const std::byte* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}

// Of a block, both halves of the lanes each.
template <QuantForm F>
struct BlockScales {
  __m256 scale[F.halves ? 2 : 1][2];  // [half of the columns]
  __m256 minimum[2];                  // if the form has minima
};

// A record of a panel. What the blocks of a super-block share is read once.
template <QuantForm F>
class ScaleRecord {
 public:
  __attribute__((always_inline)) inline explicit ScaleRecord(const std::byte* at) : at_(at) {
    if constexpr (F.super) shared_ = floats(at);
  }
  // Of block b of the record.
  __attribute__((always_inline)) inline BlockScales<F> block(int64_t b) const {
    if constexpr (!F.super) return floats(at_ + b * factors_at(F));
    BlockScales<F> out;
    const std::byte* factors = at_ + factors_at(F) + b * 2 * kPanelRows;
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
      const __m256 second = eight_bytes(factors + kPanelRows + 8 * i);
      out.scale[0][i] = _mm256_mul_ps(shared_.scale[0][i], eight_bytes(factors + 8 * i));
      if constexpr (F.halves) out.scale[1][i] = _mm256_mul_ps(shared_.scale[0][i], second);
      if constexpr (F.minimum) out.minimum[i] = _mm256_mul_ps(shared_.minimum[i], second);
    }
    return out;
  }

 private:
  static __attribute__((always_inline)) inline BlockScales<F> floats(const std::byte* at) {
    BlockScales<F> out;
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
      out.scale[0][i] = eight_halves(at + 16 * i);
      if constexpr (F.minimum) out.minimum[i] = eight_halves(at + 32 + 16 * i);
    }
    return out;
  }

  const std::byte* at_;
  BlockScales<F> shared_;
};

}  // namespace
}  // namespace cohort
