// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "kernels/cpu/quantize.h"

namespace cohort {
namespace {

// The sum of 32 integers of 8 bits: as differences from -128 they are unsigned, and added by eight.
inline int32_t sum_bytes(__m256i bytes) {
  const __m256i shifted = _mm256_xor_si256(bytes, _mm256_set1_epi8(char(0x80)));
  const __m256i sums = _mm256_sad_epu8(shifted, _mm256_setzero_si256());
  __m128i s = _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  s = _mm_add_epi64(s, _mm_unpackhi_epi64(s, s));
  return _mm_cvtsi128_si32(s) - 32 * 128;
}

inline void quantize_block(const float* x, int8_t* q, float* d, int32_t* sum) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  const __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
  const __m512i top = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(low), magnitude),
                                       _mm512_and_si512(_mm512_castps_si512(high), magnitude));
  const uint32_t bits = _mm512_reduce_max_epu32(top);
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
  const __m512 inverse = _mm512_set1_ps(127.0f / largest);
  const auto bytes_of = [&](__m512 v) {
    return _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(v, inverse)));
  };
  const __m256i bytes = _mm256_set_m128i(bytes_of(high), bytes_of(low));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), bytes);
  *sum = sum_bytes(bytes);
}

}  // namespace

void quantize_avx512(const float* x, int64_t blocks, const QuantizedBlocks& out) {
  for (int64_t b = 0, slot = 0; b < blocks; b++, slot += kRowTile) {
    quantize_block(x + b * 32, out.q + b * out.block_bytes, out.d + slot, out.sum + slot);
    out.s[slot] = out.d[slot] * float(out.sum[slot]);
  }
}

}  // namespace cohort
