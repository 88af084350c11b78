// SPDX-License-Identifier: Apache-2.0
// Quantised weights times int8 activations: a panel is two halves of eight lanes. Plain weights,
// and everything in ActivationMode::f32, are in matmul_plain_avx2.cc.
#include <immintrin.h>

#include "kernels/cpu/matmul_avx2.h"
#include "kernels/cpu/matmul_job.h"
#include "kernels/cpu/unit_sums.h"
#include "kernels/packed.h"

namespace cohort {
namespace {

#define COHORT_INLINE __attribute__((always_inline)) inline

// How far ahead of the block in use the packed stream is asked for. Panels are back to back, so it
// runs into the next one.
constexpr int64_t kFetchAhead = 4096;

COHORT_INLINE __m256i load(const std::byte* p) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
}
COHORT_INLINE __m256i four_columns(const int8_t* x) {
  int32_t bytes;
  __builtin_memcpy(&bytes, x, 4);
  return _mm256_set1_epi32(bytes);
}

// Unsigned nibbles: a whole block is added in 16 bits (8 * 2 * 15 * 127 = 30480).
template <QuantForm F, int M>
COHORT_INLINE void nibble_dots(const std::byte* q, const int8_t* x, const int32_t* sum,
                               __m256i (&dot)[M]) {
  const __m256i ones = _mm256_set1_epi16(1), nibble = _mm256_set1_epi8(15);
  __m256i w[8];
#pragma GCC unroll 4
  for (int j = 0; j < 4; j++) {
    const __m256i v = load(q + 64 * j);
    w[j] = _mm256_and_si256(v, nibble);
    w[j + 4] = _mm256_and_si256(_mm256_srli_epi16(v, 4), nibble);
  }
#pragma GCC unroll 1
  for (int m = 0; m < M; m++) {
    const int8_t* row = x + m * kQuantBlock;
    __m256i s = _mm256_maddubs_epi16(w[0], four_columns(row));
#pragma GCC unroll 8
    for (int g = 1; g < 8; g++)
      s = _mm256_add_epi16(s, _mm256_maddubs_epi16(w[g], four_columns(row + 4 * g)));
    dot[m] = _mm256_madd_epi16(s, ones);
    if constexpr (F.offset != 0)
      dot[m] = _mm256_add_epi32(dot[m], _mm256_set1_epi32(-F.offset * sum[m]));
  }
}

// Vectors [G0, G0 + 4) of an int8 block, added to dot. |w| is the unsigned factor and x takes w's
// sign: exact even for w = -128, because x never is. Where no weight exceeds 32 in magnitude, four
// products stay in 16 bits (4 * 2 * 32 * 127 = 32512), and unsigned weights need no sign.
template <QuantForm F, int M, int G0>
COHORT_INLINE void byte_dots(const std::byte* q, const int8_t* x, __m256i (&dot)[M]) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sixteen[M];
#pragma GCC unroll 4
  for (int g = G0; g < G0 + 4; g++) {
    const __m256i w = load(q + 64 * g), magnitude = F.minimum ? w : _mm256_abs_epi8(w);
#pragma GCC unroll 4
    for (int m = 0; m < M; m++) {
      const __m256i columns = four_columns(x + m * kQuantBlock + 4 * g);
      const __m256i pairs =
          _mm256_maddubs_epi16(magnitude, F.minimum ? columns : _mm256_sign_epi8(columns, w));
      if constexpr (F.small)
        sixteen[m] = g == G0 ? pairs : _mm256_add_epi16(sixteen[m], pairs);
      else
        dot[m] = _mm256_add_epi32(dot[m], _mm256_madd_epi16(pairs, ones));
    }
  }
  if constexpr (F.small)
#pragma GCC unroll 4
    for (int m = 0; m < M; m++)
      dot[m] = _mm256_add_epi32(dot[m], _mm256_madd_epi16(sixteen[m], ones));
}

// Eight scales or minima.
template <QuantForm F>
COHORT_INLINE __m256 eight(const std::byte* p, int64_t i) {
  if constexpr (F.wide) return _mm256_load_ps(reinterpret_cast<const float*>(p) + i);
  return _mm256_cvtph_ps(
      _mm_load_si128(reinterpret_cast<const __m128i*>(reinterpret_cast<const uint16_t*>(p) + i)));
}

// acc = fma(d_w d_x, dot, acc) for M rows.
template <int M>
COHORT_INLINE void accumulate(__m256 scale, const float* d, const __m256i (&dot)[M], __m256* acc) {
#pragma GCC unroll 1
  for (int m = 0; m < M; m++)
    acc[m] = _mm256_fmadd_ps(_mm256_mul_ps(scale, _mm256_broadcast_ss(d + m)),
                             _mm256_cvtepi32_ps(dot[m]), acc[m]);
}

template <int M>
COHORT_INLINE void clear(__m256i (&dot)[M]) {
#pragma GCC unroll 4
  for (int m = 0; m < M; m++) dot[m] = _mm256_setzero_si256();
}

// One block of half a panel (lanes 8 * half ..) with M rows of x.
template <QuantForm F, int M>
COHORT_INLINE void half_block(const PanelShape& shape, const std::byte* panel, int64_t b, int half,
                              const RowTile& x, int row, __m256* acc) {
  const std::byte* q = panel + shape.quants_at + b * shape.quant_bytes + 32 * half;
  const int8_t* columns = x.q + b * x.block_bytes + row * kQuantBlock;
  const int64_t slot = b * kRowTile + row;
  __m256i dot[M];
  if constexpr (F.nibbles) {
    nibble_dots<F, M>(q, columns, x.sum + slot, dot);
  } else {
    clear(dot);
    byte_dots<F, M, 0>(q, columns, dot);
    if constexpr (F.halves) {
      accumulate(eight<F>(panel, 2 * b * kPanelRows + 8 * half), x.d + slot, dot, acc);
      clear(dot);
    }
    byte_dots<F, M, 4>(q, columns, dot);
  }
  const int64_t last_scale = (F.halves ? 2 * b + 1 : b) * kPanelRows + 8 * half;
  accumulate(eight<F>(panel, last_scale), x.d + slot, dot, acc);
  if constexpr (F.minimum) {
    const __m256 minimum = eight<F>(panel + shape.minima_at, b * kPanelRows + 8 * half);
#pragma GCC unroll 1
    for (int m = 0; m < M; m++)
      acc[m] = _mm256_fmadd_ps(minimum, _mm256_broadcast_ss(x.s + slot + m), acc[m]);
  }
}

template <QuantForm F, int M>
void rows(const MatmulJob& job, const std::byte* panel, int lanes, const RowTile& x, int row,
          float* y) {
  const PanelShape shape = panel_shape(F, job.columns);
  constexpr int64_t kStep = panel_shape(F, 2048).bytes / (2048 / kQuantBlock);
  const char* ahead = reinterpret_cast<const char*>(panel) + kFetchAhead;
  UnitSums<__m256, 2 * M> sums;
  __m256 acc[2 * M];
  for (int64_t b = job.begin / kQuantBlock, last = job.end / kQuantBlock; b < last;) {
#pragma GCC unroll 8
    for (auto& a : acc) a = _mm256_setzero_ps();
    for (const int64_t end = b + job.unit_columns / kQuantBlock; b < end; b++) {
      if (row == 0)
        for (int64_t i = 0; i < kStep; i += 64) _mm_prefetch(ahead + b * kStep + i, _MM_HINT_T0);
#pragma GCC unroll 1  // unrolled further, GCC spills more than it gains
      for (int half = 0; half < 2; half++)
        half_block<F, M>(shape, panel, b, half, x, row, acc + half * M);
    }
    sums.push(acc);
  }
  sums.finish(acc);
#pragma GCC unroll 4
  for (int m = 0; m < M; m++) store_lanes(y + m * job.stride, acc[m], acc[M + m], lanes);
}

template <QuantForm F>
void panels(const MatmulJob& job, int64_t p0, int64_t p1) {
  for (int64_t p = p0; p < p1; p++) {
    const std::byte* panel = job.packed + p * job.panel_bytes;
    const int64_t left = job.n - p * kPanelRows;
    const int lanes = left < kPanelRows ? int(left) : kPanelRows;
    for (int64_t r = 0; r < job.rows;) {
      const RowTile x = row_tile(job.q, r / kRowTile);
      const int row = int(r % kRowTile);
      const int64_t in_tile = kRowTile - row, n = job.rows - r < in_tile ? job.rows - r : in_tile;
      float* y = job.y + r * job.stride + p * kPanelRows;
      if (n >= 4) {
        rows<F, 4>(job, panel, lanes, x, row, y);
        r += 4;
      } else if (n >= 2) {
        rows<F, 2>(job, panel, lanes, x, row, y);
        r += 2;
      } else {
        rows<F, 1>(job, panel, lanes, x, row, y);
        r += 1;
      }
    }
  }
}

}  // namespace

void matmul_avx2(const MatmulJob& job, int64_t p0, int64_t p1) {
  if (!job.quantized || !job.int8) return matmul_plain_avx2(job, p0, p1);
  switch (job.type) {
    case DType::q4_0:
      return panels<quant_form(DType::q4_0)>(job, p0, p1);
    case DType::q4_1:
      return panels<quant_form(DType::q4_1)>(job, p0, p1);
    case DType::q5_0:
      return panels<quant_form(DType::q5_0)>(job, p0, p1);
    case DType::q5_1:
      return panels<quant_form(DType::q5_1)>(job, p0, p1);
    case DType::q4_k:
      return panels<quant_form(DType::q4_k)>(job, p0, p1);
    case DType::q5_k:
      return panels<quant_form(DType::q5_k)>(job, p0, p1);
    case DType::q6_k:
      return panels<quant_form(DType::q6_k)>(job, p0, p1);
    default:
      return panels<quant_form(DType::q8_0)>(job, p0, p1);
  }
}

}  // namespace cohort
