// SPDX-License-Identifier: Apache-2.0
// Quantised weights times int8 activations: a panel is two halves of eight lanes. Plain weights,
// and everything in ActivationMode::f32, are in matmul_plain_avx2.cc.
#include <immintrin.h>

#include "kernels/cpu/matmul_avx2.h"
#include "kernels/cpu/matmul_job.h"
#include "kernels/cpu/panel_fetch.h"
#include "kernels/cpu/unit_sums.h"
#include "kernels/packed.h"

namespace cohort {
namespace {

#define COHORT_INLINE __attribute__((always_inline)) inline

// Rows whose products are computed side by side: a broadcast of x serves both halves of the panel
// and a vector of weights all of these rows. Their sums fill half of the registers.
constexpr int kSide = 4;
constexpr int kSides = kRowTile / kSide;

// Whether weights are signed: then |w| is the unsigned factor and x takes w's sign, which is exact
// even for w = -128, because x never is. An offset makes them unsigned, and is taken off again as
// offset * (sum of x).
template <QuantForm F>
constexpr bool kSigned = !F.nibbles && !F.minimum && F.offset == 0;

COHORT_INLINE __m256i load(const std::byte* p) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
}
COHORT_INLINE __m256i four_columns(const int8_t* x) {
  int32_t bytes;
  __builtin_memcpy(&bytes, x, 4);
  return _mm256_set1_epi32(bytes);
}

// Keeps additions in their order: GCC would compute all products first and then add them as a tree,
// by way of the stack.
COHORT_INLINE void in_order(__m256i& sum) { asm("" : "+x"(sum)); }

// A block of nibbles as bytes, in the form of int8 types, for all rows of a tile.
COHORT_INLINE void unpack(const std::byte* q, std::byte* out) {
  const __m256i nibble = _mm256_set1_epi8(15);
#pragma GCC unroll 8
  for (int i = 0; i < 256; i += 32) {
    const __m256i v = load(q + i);
    _mm256_store_si256(reinterpret_cast<__m256i*>(out + i), _mm256_and_si256(v, nibble));
    _mm256_store_si256(reinterpret_cast<__m256i*>(out + 256 + i),
                       _mm256_and_si256(_mm256_srli_epi16(v, 4), nibble));
  }
}

// Vectors [G0, G0 + 4) of a block with N rows: products in 16 bits. All of a block of nibbles fit
// (8 * 2 * 15 * 127 = 30480), or four of weights up to 32 (4 * 2 * 32 * 127 = 32512).
template <QuantForm F, int N, int G0>
COHORT_INLINE void sixteen_bits(const std::byte* w, const int8_t* x, bool first,
                                __m256i (&s)[2 * N]) {
#pragma GCC unroll 4
  for (int g = G0; g < G0 + 4; g++) {
    const __m256i low = load(w + 64 * g), high = load(w + 64 * g + 32);
    const __m256i u = kSigned<F> ? _mm256_abs_epi8(low) : low;
    const __m256i v = kSigned<F> ? _mm256_abs_epi8(high) : high;
#pragma GCC unroll 4
    for (int n = 0; n < N; n++) {
      const __m256i columns = four_columns(x + n * kQuantBlock + 4 * g);
      const __m256i a =
          _mm256_maddubs_epi16(u, kSigned<F> ? _mm256_sign_epi8(columns, low) : columns);
      const __m256i b =
          _mm256_maddubs_epi16(v, kSigned<F> ? _mm256_sign_epi8(columns, high) : columns);
      s[2 * n] = first && g == G0 ? a : _mm256_add_epi16(s[2 * n], a);
      s[2 * n + 1] = first && g == G0 ? b : _mm256_add_epi16(s[2 * n + 1], b);
      in_order(s[2 * n]);
      in_order(s[2 * n + 1]);
    }
  }
}

// The same for q8_0, whose products fill 16 bits: in 32 bits.
template <int N>
COHORT_INLINE void all_bits(const std::byte* w, const int8_t* x, __m256i (&dot)[2 * N]) {
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
  for (int i = 0; i < 2 * N; i++) dot[i] = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int g = 0; g < 8; g++) {
    const __m256i low = load(w + 64 * g), high = load(w + 64 * g + 32);
    const __m256i u = _mm256_abs_epi8(low), v = _mm256_abs_epi8(high);
#pragma GCC unroll 4
    for (int n = 0; n < N; n++) {
      const __m256i columns = four_columns(x + n * kQuantBlock + 4 * g);
      const __m256i a = _mm256_maddubs_epi16(u, _mm256_sign_epi8(columns, low));
      const __m256i b = _mm256_maddubs_epi16(v, _mm256_sign_epi8(columns, high));
      dot[2 * n] = _mm256_add_epi32(dot[2 * n], _mm256_madd_epi16(a, ones));
      dot[2 * n + 1] = _mm256_add_epi32(dot[2 * n + 1], _mm256_madd_epi16(b, ones));
      in_order(dot[2 * n]);
      in_order(dot[2 * n + 1]);
    }
  }
}

template <int N>
COHORT_INLINE void widen(__m256i (&s)[2 * N]) {
#pragma GCC unroll 8
  for (int i = 0; i < 2 * N; i++) s[i] = _mm256_madd_epi16(s[i], _mm256_set1_epi16(1));
}

// acc = fma(d_w d_x, dot, acc) for N rows, both halves.
template <int N>
COHORT_INLINE void accumulate(const __m256 (&scale)[2], const float* d, const __m256i (&dot)[2 * N],
                              __m256* acc) {
#pragma GCC unroll 4
  for (int n = 0; n < N; n++) {
    const __m256 row = _mm256_broadcast_ss(d + n);
    acc[2 * n] =
        _mm256_fmadd_ps(_mm256_mul_ps(scale[0], row), _mm256_cvtepi32_ps(dot[2 * n]), acc[2 * n]);
    acc[2 * n + 1] = _mm256_fmadd_ps(_mm256_mul_ps(scale[1], row),
                                     _mm256_cvtepi32_ps(dot[2 * n + 1]), acc[2 * n + 1]);
  }
}

// Rows of x in a block.
struct BlockRows {
  const int8_t* q;
  const float *d, *s;
  const int32_t* sum;
};

COHORT_INLINE BlockRows block_rows(const RowTile& x, int64_t b) {
  const int64_t slot = b * kRowTile;
  return {x.q + b * x.block_bytes, x.d + slot, x.s + slot, x.sum + slot};
}

// -offset * (sum of x) of N rows, added to dot.
template <QuantForm F, int N>
COHORT_INLINE void take_offset_off(const int32_t* sum, __m256i (&dot)[2 * N]) {
  constexpr int kShift = __builtin_ctz(F.offset);
  static_assert(1 << kShift == F.offset);
#pragma GCC unroll 4
  for (int n = 0; n < N; n++) {
    const __m256i offset = _mm256_slli_epi32(_mm256_set1_epi32(sum[n]), kShift);
    dot[2 * n] = _mm256_sub_epi32(dot[2 * n], offset);
    dot[2 * n + 1] = _mm256_sub_epi32(dot[2 * n + 1], offset);
  }
}

// One block of a panel with N rows; acc [N][2]. w: its weights as bytes. scales_after(dot): its
// scales, which may be read as late as dot is there.
template <QuantForm F, int N, class ScalesAfter>
COHORT_INLINE void block(const ScalesAfter& scales_after, const std::byte* w, const BlockRows& x,
                         __m256* acc) {
  __m256i dot[2 * N];
  if constexpr (F.nibbles) {
    sixteen_bits<F, N, 0>(w, x.q, true, dot);
    sixteen_bits<F, N, 4>(w, x.q, false, dot);
    widen<N>(dot);
  } else if constexpr (F.small) {
    sixteen_bits<F, N, 0>(w, x.q, true, dot);
    widen<N>(dot);
    if constexpr (F.halves) accumulate<N>(scales_after(dot[0]).scale[0], x.d, dot, acc);
    __m256i rest[2 * N];
    sixteen_bits<F, N, 4>(w, x.q, true, rest);
    widen<N>(rest);
#pragma GCC unroll 8
    for (int i = 0; i < 2 * N; i++) dot[i] = F.halves ? rest[i] : _mm256_add_epi32(dot[i], rest[i]);
  } else {
    all_bits<N>(w, x.q, dot);
  }
  if constexpr (F.offset != 0) take_offset_off<F, N>(x.sum, dot);
  const BlockScales<F>& scales = scales_after(dot[0]);
  accumulate<N>(scales.scale[F.halves], x.d, dot, acc);
  if constexpr (F.minimum) {
#pragma GCC unroll 4
    for (int n = 0; n < N; n++) {
      const __m256 row = _mm256_broadcast_ss(x.s + n);
      acc[2 * n] = _mm256_fmadd_ps(scales.minimum[0], row, acc[2 * n]);
      acc[2 * n + 1] = _mm256_fmadd_ps(scales.minimum[1], row, acc[2 * n + 1]);
    }
  }
}

// Block i of a record with the first N rows of a tile. w: its weights as bytes.
template <QuantForm F, int N>
COHORT_INLINE void few_rows(const ScaleRecord<F>& record, int64_t i, const std::byte* w,
                            const BlockRows& x, __m256* acc) {
  // Until then registers are for weights and sums.
  const auto late = [&](const __m256i& dot) __attribute__((always_inline)) {
    int64_t same = i;
    asm("" : "+r"(same) : "x"(dot));
    return record.block(same);
  };
  block<F, N>(late, w, x, acc);
}

// The same with the first `rows` rows.
template <QuantForm F>
COHORT_INLINE void many_rows(const ScaleRecord<F>& record, int64_t i, const std::byte* w,
                             BlockRows x, int rows, __m256 (&acc)[kSides][2 * kSide]) {
  const BlockScales<F> scales = record.block(i);
  const auto ready = [&](const __m256i&) __attribute__((always_inline))->const BlockScales<F>& {
    return scales;
  };
  int side = 0;
  for (; rows >= kSide; rows -= kSide, side++) {
    const std::byte* same = w;
    asm("" : "+r"(same));  // else GCC would read all weights before the first side, onto the stack
    block<F, kSide>(ready, same, x, acc[side]);
    x = {x.q + kSide * kQuantBlock, x.d + kSide, x.s + kSide, x.sum + kSide};
  }
  if (rows == 3) block<F, 3>(ready, w, x, acc[side]);
  if (rows == 2) block<F, 2>(ready, w, x, acc[side]);
  if (rows == 1) block<F, 1>(ready, w, x, acc[side]);
}

// Up to 16 rows, a tile's first, with one panel. from_memory: whether the panel comes from there.
// kFew: 1 to 3, so many rows, whose sums stay in registers; 0: `some`.
template <QuantForm F, int kFew>
void tile(const MatmulJob& job, const std::byte* panel, int lanes, const RowTile& x, int some,
          bool from_memory, float* y) {
  constexpr int kWidth = 2 * (kFew ? kFew : kSide);
  const int rows = kFew ? kFew : some;
  const PanelShape shape = panel_shape(F, job.columns);
  const PanelFetch<F> fetch(shape);
  const int sides = kFew ? 1 : (rows + kSide - 1) / kSide;
  UnitSums<__m256, kWidth> sums[kFew ? 1 : kSides];
  __m256 acc[kFew ? 1 : kSides][kWidth];
  for (int64_t b = job.begin / kQuantBlock, last = job.end / kQuantBlock; b < last;) {
    for (int i = 0; i < sides; i++)
#pragma GCC unroll 8
      for (auto& a : acc[i]) a = _mm256_setzero_ps();
    for (const int64_t end = b + job.unit_columns / kQuantBlock; b < end;) {
      const ScaleRecord<F> record(panel + record_at(F, shape, b));
      for (int64_t i = 0; i < record_blocks(F); i++, b++) {
        if (from_memory) fetch(panel, b);
        const std::byte* w = panel + shape.quants_at + b * shape.quant_bytes;
        alignas(32) std::byte bytes[F.nibbles ? 512 : 1];
        if constexpr (F.nibbles) {
          unpack(w, bytes);
          w = bytes;
        }
        if constexpr (kFew != 0)
          few_rows<F, kFew>(record, i, w, block_rows(x, b), acc[0]);
        else
          many_rows<F>(record, i, w, block_rows(x, b), rows, acc);
      }
    }
    for (int i = 0; i < sides; i++) sums[i].push(acc[i]);
  }
  for (int i = 0; i < sides; i++) sums[i].finish(acc[i]);
  for (int m = 0; m < rows; m++) {
    const __m256* a = &acc[m / kSide][2 * (m % kSide)];
    store_lanes(y + m * job.stride, a[0], a[1], lanes);
  }
}

template <QuantForm F>
void panels(const MatmulJob& job, int64_t p0, int64_t p1) {
  static constexpr decltype(&tile<F, 0>) kTiles[] = {tile<F, 0>, tile<F, 1>, tile<F, 2>,
                                                     tile<F, 3>};
  for (int64_t p = p0; p < p1; p++) {
    const std::byte* panel = job.packed + p * job.panel_bytes;
    const int64_t left = job.n - p * kPanelRows;
    const int lanes = left < kPanelRows ? int(left) : kPanelRows;
    for (int64_t r = 0; r < job.rows; r += kRowTile) {
      const int64_t rows = job.rows - r < kRowTile ? job.rows - r : kRowTile;
      kTiles[rows < kSide ? rows : 0](job, panel, lanes, row_tile(job.q, r / kRowTile), int(rows),
                                      r == 0, job.y + r * job.stride + p * kPanelRows);
    }
  }
}

}  // namespace

void matmul_avx2(const MatmulJob& job, int64_t p0, int64_t p1) {
  if (!job.quantized || !job.int8) return matmul_plain_avx2(job, p0, p1);
  for_form(job.type, [&](auto f) { panels<f.form>(job, p0, p1); });
}

}  // namespace cohort
