// SPDX-License-Identifier: Apache-2.0
// One FMA chain over columns per output: lanes are output rows and x is broadcast, so the width of
// a vector cannot change a bit.
#include "kernels/cpu/matmul_avx512.h"
#include "kernels/cpu/unit_sums.h"
#include "kernels/packed.h"

namespace cohort {
namespace {

#define COHORT_INLINE __attribute__((always_inline)) inline

struct F32 {
  static constexpr int kBytes = 4;
  static COHORT_INLINE __m512 load(const std::byte* p) { return _mm512_load_ps(p); }
};
COHORT_INLINE __m256i halves(const std::byte* p) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
}
struct F16 {
  static constexpr int kBytes = 2;
  static COHORT_INLINE __m512 load(const std::byte* p) { return _mm512_cvtph_ps(halves(p)); }
};
struct Bf16 {
  static constexpr int kBytes = 2;
  static COHORT_INLINE __m512 load(const std::byte* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves(p)), 16));
  }
};

// Panels in memory, `apart` bytes from each other; the first is number p of the part.
struct Panels {
  const std::byte* data;
  int64_t apart, p;
  int count;
};

// M rows of x by P panels: enough independent chains to hide the latency of an FMA.
template <class L, int M, int P>
void block(const MatmulJob& job, const Panels& w, const float* x, float* y) {
  UnitSums<__m512, M * P> sums;
  __m512 acc[M * P];
  for (int64_t k = job.begin; k < job.end;) {
#pragma GCC unroll 24
    for (auto& a : acc) a = _mm512_setzero_ps();
    for (const int64_t end = k + job.unit_columns; k < end; k++) {
      __m512 weights[P];
#pragma GCC unroll 4
      for (int p = 0; p < P; p++)
        weights[p] = L::load(w.data + p * w.apart + k * kPanelRows * L::kBytes);
#pragma GCC unroll 12
      for (int m = 0; m < M; m++) {
        const __m512 column = _mm512_set1_ps(x[m * job.columns + k]);
#pragma GCC unroll 4
        for (int p = 0; p < P; p++)
          acc[m * P + p] = _mm512_fmadd_ps(weights[p], column, acc[m * P + p]);
      }
    }
    sums.push(acc);
  }
  sums.finish(acc);
#pragma GCC unroll 12
  for (int m = 0; m < M; m++)
#pragma GCC unroll 4
    for (int p = 0; p < P; p++)
      _mm512_mask_storeu_ps(y + m * job.stride + p * kPanelRows, lanes_of(job, w.p + p),
                            acc[m * P + p]);
}

template <class L>
using Block = decltype(&block<L, 1, 1>);

// All rows of x over up to four panels, in about equal tiles of rows.
template <class L>
void group(const MatmulJob& job, const Panels& w) {
  static constexpr Block<L> kFour[] = {block<L, 1, 4>, block<L, 2, 4>, block<L, 3, 4>,
                                       block<L, 4, 4>, block<L, 5, 4>, block<L, 6, 4>};
  static constexpr Block<L> kOne[] = {block<L, 1, 1>,  block<L, 2, 1>,  block<L, 3, 1>,
                                      block<L, 4, 1>,  block<L, 5, 1>,  block<L, 6, 1>,
                                      block<L, 7, 1>,  block<L, 8, 1>,  block<L, 9, 1>,
                                      block<L, 10, 1>, block<L, 11, 1>, block<L, 12, 1>};
  const int most = w.count == 4 ? 6 : 12;
  float* y = job.y + w.p * kPanelRows;
  for (int64_t r = 0, m; r < job.rows; r += m) {
    const int64_t left = job.rows - r, tiles = (left + most - 1) / most;
    m = (left + tiles - 1) / tiles;
    const float* x = job.x + r * job.columns;
    float* to = y + r * job.stride;
    if (w.count == 4) {
      kFour[m - 1](job, w, x, to);
      continue;
    }
    for (int p = 0; p < w.count; p++)
      kOne[m - 1](job, {w.data + p * w.apart, 0, w.p + p, 1}, x, to + p * kPanelRows);
  }
}

template <class L>
void plain(const MatmulJob& job, int64_t p0, int64_t p1) {
  for (int64_t p = p0; p < p1; p += 4)
    group<L>(job,
             {job.packed + p * job.panel_bytes, job.panel_bytes, p, p1 - p < 4 ? int(p1 - p) : 4});
}

// ---- quantised weights as f32, [column][16] ----------------------------------------------------

// Byte i of every lane of an int8 vector; for nibbles the low or (high: 1) high ones.
template <QuantForm F>
COHORT_INLINE __m512i integers(__m512i bytes, int i, int high) {
  if constexpr (F.nibbles)
    return _mm512_sub_epi32(_mm512_and_si512(_mm512_srli_epi32(bytes, unsigned(8 * i + 4 * high)),
                                             _mm512_set1_epi32(15)),
                            _mm512_set1_epi32(F.offset));
  return _mm512_sub_epi32(_mm512_srai_epi32(_mm512_slli_epi32(bytes, unsigned(24 - 8 * i)), 24),
                          _mm512_set1_epi32(F.offset));
}

// One half of a block, 16 columns.
template <QuantForm F>
COHORT_INLINE void widen_half(const std::byte* quants, int half, __m512 scale, __m512 minimum,
                              float* out) {
#pragma GCC unroll 4
  for (int g = 0; g < 4; g++) {
    const __m512i bytes = _mm512_load_si512(quants + 64 * (F.nibbles ? g : 4 * half + g));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      __m512 w = _mm512_mul_ps(scale, _mm512_cvtepi32_ps(integers<F>(bytes, i, half)));
      if constexpr (F.minimum) w = _mm512_add_ps(w, minimum);
      _mm512_store_ps(out + (4 * g + i) * kPanelRows, w);
    }
  }
}

template <QuantForm F>
void widen(const MatmulJob& job, const std::byte* panel) {
  const PanelShape shape = panel_shape(F, job.columns);
  for (int64_t b = job.begin / kQuantBlock; b < job.end / kQuantBlock; b++) {
    const std::byte* quants = panel + shape.quants_at + b * shape.quant_bytes;
    float* out = job.scratch + b * kQuantBlock * kPanelRows;
    const BlockScales<F> scales(shape, panel, b);
    __m512 minimum = _mm512_setzero_ps();
    if constexpr (F.minimum) minimum = scales.minimum;
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++)
      widen_half<F>(quants, half, scales.scale[F.halves ? half : 0], minimum,
                    out + 16 * half * kPanelRows);
  }
}

template <QuantForm F>
void widened(const MatmulJob& job, int64_t p0, int64_t p1) {
  for (int64_t p = p0; p < p1; p++) {
    widen<F>(job, job.packed + p * job.panel_bytes);
    group<F32>(job, {reinterpret_cast<const std::byte*>(job.scratch), 0, p, 1});
  }
}

}  // namespace

void matmul_plain_avx512(const MatmulJob& job, int64_t p0, int64_t p1) {
  if (job.quantized) return for_form(job.type, [&](auto f) { widened<f.form>(job, p0, p1); });
  if (job.type == DType::f16) return plain<F16>(job, p0, p1);
  if (job.type == DType::bf16) return plain<Bf16>(job, p0, p1);
  plain<F32>(job, p0, p1);
}

}  // namespace cohort
