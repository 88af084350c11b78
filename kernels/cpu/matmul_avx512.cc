// SPDX-License-Identifier: Apache-2.0
// Quantised weights times int8 activations: one vector of 32-bit lanes is a panel. The eight weight
// vectors of a block stay in registers while the rows of x pass by as broadcast memory operands.
// Plain weights, and everything in ActivationMode::f32, are in matmul_plain_avx512.cc.
#include "kernels/cpu/matmul_avx512.h"

#include "kernels/cpu/panel_fetch.h"
#include "kernels/cpu/unit_sums.h"
#include "kernels/packed.h"

namespace cohort {
namespace {

#define COHORT_INLINE __attribute__((always_inline)) inline

// Rows whose sums run side by side: one chain of eight products after another would fill the
// scheduler.
constexpr int kSide = 4;

// The multiplier of weights is unsigned: what is added to them to make them so, and taken off again
// by sums that start at -bias * (sum of x).
template <QuantForm F>
constexpr int kBias = F.offset != 0            ? F.offset
                      : F.nibbles || F.minimum ? 0
                                               : 128;

template <QuantForm F>
COHORT_INLINE void unpack(const std::byte* q, __m512i (&w)[8]) {
  if constexpr (F.nibbles) {
    const __m512i nibble = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
      const __m512i v = _mm512_load_si512(q + 64 * j);
      w[j] = _mm512_and_si512(v, nibble);
      w[j + 4] = _mm512_and_si512(_mm512_srli_epi16(v, 4), nibble);
    }
  } else {
    const __m512i bias = _mm512_set1_epi8(int8_t(0x80));  // w + 128, as bytes
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
      w[g] = _mm512_load_si512(q + 64 * g);
      if constexpr (kBias<F> == 128) w[g] = _mm512_xor_si512(w[g], bias);
    }
  }
}

// Where the sums of M rows of a block start. Two numbers a row where each half of the block has a
// scale of its own, else one.
template <QuantForm F, int M>
struct Starts {
  static constexpr int kStride = F.halves ? 8 : 1;  // from row to row
  static constexpr int kFew = 4;                    // rows: memory would only be a detour
  alignas(64) int32_t at[M * kStride < 16 ? 16 : M * kStride + 8];
  const int32_t* sums;

  // x: integers [M][32]; sum: of each row.
  COHORT_INLINE void compute(const int8_t* x, const int32_t* sum) {
    if constexpr (F.halves) {
#pragma GCC unroll 8
      for (int m = 0; m + 1 < M; m += 2)
        _mm512_store_si512(at + 8 * m, of_halves(_mm512_loadu_si512(x + 32 * m)));
      if constexpr (M % 2 != 0) {
        const auto* last = reinterpret_cast<const __m256i*>(x + 32 * (M - 1));
        _mm256_store_si256(
            reinterpret_cast<__m256i*>(at + 8 * (M - 1)),
            _mm512_castsi512_si256(of_halves(_mm512_zextsi256_si512(_mm256_loadu_si256(last)))));
      }
    } else if constexpr (kBias<F> != 0 && M > kFew) {
      _mm512_store_si512(at, minus_bias(_mm512_maskz_loadu_epi32((1u << M) - 1, sum)));
    }
    sums = sum;
    // Read back by broadcasts from memory, not by shuffles.
    asm("" : "+m"(at));
  }
  COHORT_INLINE __m512i row(int m, int half) const {
    if constexpr (kBias<F> == 0) return _mm512_setzero_si512();
    if constexpr (!F.halves && M <= kFew) return minus_bias(_mm512_set1_epi32(sums[m]));
    return _mm512_set1_epi32(at[m * kStride + 4 * half]);
  }

 private:
  static COHORT_INLINE __m512i minus_bias(__m512i sum) {
    constexpr int kShift = kBias<F> == 0 ? 0 : __builtin_ctz(kBias<F>);
    static_assert(kBias<F> == 0 || 1 << kShift == kBias<F>);
    return _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(sum, kShift));
  }
  // Two rows: a quarter of a vector is half a row of a block, and becomes -bias times its sum.
  static COHORT_INLINE __m512i of_halves(__m512i x) {
    __m512i s = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(int8_t(kBias<F>)), x);
    s = _mm512_add_epi32(s, _mm512_shuffle_epi32(s, _MM_PERM_BADC));
    s = _mm512_add_epi32(s, _mm512_shuffle_epi32(s, _MM_PERM_CDAB));
    return _mm512_sub_epi32(_mm512_setzero_si512(), s);
  }
};

// Products of columns [4 G0, 4 G1) of a block, added to dot.
template <int N, int G0, int G1>
COHORT_INLINE void dots(const __m512i (&w)[8], const int8_t* x, __m512i (&dot)[kSide]) {
#pragma GCC unroll 8
  for (int g = G0; g < G1; g++)
#pragma GCC unroll 4
    for (int m = 0; m < N; m++) {
      int32_t four;
      __builtin_memcpy(&four, x + m * kQuantBlock + 4 * g, 4);
      dot[m] = _mm512_dpbusd_epi32(dot[m], w[g], _mm512_set1_epi32(four));
    }
}

// acc = fma(d_w d_x, dot, acc).
COHORT_INLINE __m512 accumulate(__m512 scale, float d, __m512i dot, __m512 acc) {
  return _mm512_fmadd_ps(_mm512_mul_ps(scale, _mm512_set1_ps(d)), _mm512_cvtepi32_ps(dot), acc);
}

// A block of a panel: weights and what belongs to all rows.
template <QuantForm F>
struct Block {
  __m512i w[8];
  BlockScales<F> scales;

  COHORT_INLINE Block(const PanelShape& shape, const std::byte* panel, int64_t b)
      : scales(shape, panel, b) {
    unpack<F>(panel + shape.quants_at + b * shape.quant_bytes, w);
  }

  // N <= kSide rows, of which the first is row m of the M rows at x, d, s and acc.
  template <int N, int M>
  COHORT_INLINE void rows(int m, const Starts<F, M>& starts, const int8_t* x, const float* d,
                          const float* s, __m512 (&acc)[M]) const {
    __m512i dot[kSide];
    x += m * kQuantBlock;
#pragma GCC unroll 4
    for (int i = 0; i < N; i++) dot[i] = starts.row(m + i, 0);
    dots<N, 0, 4>(w, x, dot);
    if constexpr (F.halves) {
#pragma GCC unroll 4
      for (int i = 0; i < N; i++) {
        acc[m + i] = accumulate(scales.scale[0], d[m + i], dot[i], acc[m + i]);
        dot[i] = starts.row(m + i, 1);
      }
    }
    dots<N, 4, 8>(w, x, dot);
#pragma GCC unroll 4
    for (int i = 0; i < N; i++) {
      acc[m + i] = accumulate(scales.scale[F.halves], d[m + i], dot[i], acc[m + i]);
      if constexpr (F.minimum)
        acc[m + i] = _mm512_fmadd_ps(scales.minimum, _mm512_set1_ps(s[m + i]), acc[m + i]);
    }
  }
};

// Block b of a panel with M rows of x, from `row` of its tile on.
template <QuantForm F, int M>
COHORT_INLINE void one_block(const PanelShape& shape, const std::byte* panel, int64_t b,
                             const RowTile& x, int64_t row, __m512 (&acc)[M]) {
  const Block<F> block(shape, panel, b);
  const int8_t* q = x.q + b * x.block_bytes + row * kQuantBlock;
  const int64_t slot = b * kRowTile + row;
  Starts<F, M> starts;
  starts.compute(q, x.sum + slot);
  if constexpr (M >= kSide)
#pragma GCC unroll 4
    for (int m = 0; m + kSide <= M; m += kSide)
      block.template rows<kSide, M>(m, starts, q, x.d + slot, x.s + slot, acc);
  if constexpr (M % kSide != 0)
    block.template rows<M % kSide, M>(M / kSide * kSide, starts, q, x.d + slot, x.s + slot, acc);
}

// Rows [r, r + M) of x, of one tile, by P panels side by side from p on.
// from_memory: whether the panels come from there.
template <QuantForm F, int M, int P>
void rows(const MatmulJob& job, int64_t p, int64_t r, bool from_memory) {
  const RowTile x = row_tile(job.q, r / kRowTile);
  const PanelShape shape = panel_shape(F, job.columns);
  const PanelFetch<F> fetch(shape);
  const std::byte* panel = job.packed + p * job.panel_bytes;
  UnitSums<__m512, M> sums[P];
  __m512 acc[P][M];
  for (int64_t b = job.begin / kQuantBlock, last = job.end / kQuantBlock; b < last;) {
#pragma GCC unroll 2
    for (auto& a : acc)
#pragma GCC unroll 16
      for (auto& v : a) v = _mm512_setzero_ps();
    for (const int64_t end = b + job.unit_columns / kQuantBlock; b < end; b++)
#pragma GCC unroll 2
      for (int i = 0; i < P; i++) {
        const std::byte* at = panel + i * job.panel_bytes;
        one_block<F, M>(shape, at, b, x, r % kRowTile, acc[i]);
        if (from_memory) fetch(at, b);  // not ahead of what the block itself needs
      }
#pragma GCC unroll 2
    for (int i = 0; i < P; i++) sums[i].push(acc[i]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < P; i++) {
    sums[i].finish(acc[i]);
    float* y = job.y + r * job.stride + (p + i) * kPanelRows;
#pragma GCC unroll 16
    for (int m = 0; m < M; m++)
      _mm512_mask_storeu_ps(y + m * job.stride, lanes_of(job, p + i), acc[i][m]);
  }
}

template <QuantForm F>
void panels(const MatmulJob& job, int64_t p0, int64_t p1) {
  static constexpr decltype(&rows<F, 1, 1>) kRows[kRowTile] = {
      rows<F, 1, 1>,  rows<F, 2, 1>,  rows<F, 3, 1>,  rows<F, 4, 1>,
      rows<F, 5, 1>,  rows<F, 6, 1>,  rows<F, 7, 1>,  rows<F, 8, 1>,
      rows<F, 9, 1>,  rows<F, 10, 1>, rows<F, 11, 1>, rows<F, 12, 1>,
      rows<F, 13, 1>, rows<F, 14, 1>, rows<F, 15, 1>, rows<F, 16, 1>};
  int64_t p = p0;
  // For one row, long panels are read two at a time: memory gives more to more streams.
  if (job.rows == 1 && job.panel_bytes >= kLongPanel)
    for (; p + 2 <= p1; p += 2) rows<F, 1, 2>(job, p, 0, true);
  for (; p < p1; p++)
    for (int64_t r = 0, n; r < job.rows; r += n) {
      const int64_t left = job.rows - r, in_tile = kRowTile - r % kRowTile;
      n = left < in_tile ? left : in_tile;
      kRows[n - 1](job, p, r, r == 0);
    }
}

}  // namespace

void matmul_avx512(const MatmulJob& job, int64_t p0, int64_t p1) {
  if (!job.quantized || !job.int8) return matmul_plain_avx512(job, p0, p1);
  for_form(job.type, [&](auto f) { panels<f.form>(job, p0, p1); });
}

}  // namespace cohort
