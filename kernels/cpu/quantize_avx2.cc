// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "kernels/cpu/quantize.h"

namespace cohort {
namespace {

uint32_t largest_lane(__m256i v) {
  __m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
  return uint32_t(_mm_cvtsi128_si32(_mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1))));
}

int32_t sum_lanes(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

void quantize_block(const float* x, int8_t* q, float* d, int32_t* sum) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256 v[4];
  __m256i top = _mm256_setzero_si256();
  for (int i = 0; i < 4; i++) {
    v[i] = _mm256_loadu_ps(x + 8 * i);
    top = _mm256_max_epu32(top, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
  }
  const uint32_t bits = largest_lane(top);
  float largest;
  __builtin_memcpy(&largest, &bits, 4);
  const bool finite = bits < 0x7f800000u, zero = largest < 0x1p-100f;
  if (zero || !finite) {
    *d = finite ? 0 : __builtin_nanf("");
    *sum = 0;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), _mm256_setzero_si256());
    return;
  }
  *d = largest / 127.0f;
  const __m256 inverse = _mm256_set1_ps(127.0f / largest);
  __m256i n[4];
  for (int i = 0; i < 4; i++) n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
  __m256i bytes =
      _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
  bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), bytes);
  *sum = sum_lanes(_mm256_add_epi32(_mm256_add_epi32(n[0], n[1]), _mm256_add_epi32(n[2], n[3])));
}

}  // namespace

void quantize_avx2(const float* x, int64_t blocks, const QuantizedBlocks& out) {
  for (int64_t b = 0, slot = 0; b < blocks; b++, slot += kRowTile) {
    quantize_block(x + b * 32, out.q + b * out.block_bytes, out.d + slot, out.sum + slot);
    out.s[slot] = out.d[slot] * float(out.sum[slot]);
  }
}

}  // namespace cohort
