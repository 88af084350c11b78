// SPDX-License-Identifier: Apache-2.0
// One FMA chain over columns per output: lanes are output rows and x is broadcast, so the width of
// a vector cannot change a bit.
#include <immintrin.h>

#include "kernels/cpu/matmul_avx2.h"
#include "kernels/cpu/matmul_job.h"
#include "kernels/cpu/unit_sums.h"
#include "kernels/packed.h"

namespace cohort {
namespace {

#define COHORT_INLINE __attribute__((always_inline)) inline

struct F32 {
  static constexpr int kBytes = 4;
  static COHORT_INLINE __m256 load(const std::byte* p) {
    return _mm256_load_ps(reinterpret_cast<const float*>(p));
  }
};
struct F16 {
  static constexpr int kBytes = 2;
  static COHORT_INLINE __m256 load(const std::byte* p) { return eight_halves(p); }
};
struct Bf16 {
  static constexpr int kBytes = 2;
  static COHORT_INLINE __m256 load(const std::byte* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(
        _mm256_cvtepu16_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(p))), 16));
  }
};

// M rows of x by P panels, `apart` bytes from each other: enough independent chains to hide the
// latency of an FMA. lanes: outputs of the last panel.
template <class L, int M, int P>
void block(const MatmulJob& job, const std::byte* panel, int64_t apart, int lanes, const float* x,
           float* y) {
  UnitSums<__m256, 2 * M * P> sums;
  __m256 acc[2 * M * P];
  for (int64_t k = job.begin; k < job.end;) {
#pragma GCC unroll 16
    for (auto& a : acc) a = _mm256_setzero_ps();
    for (const int64_t end = k + job.unit_columns; k < end; k++) {
#pragma GCC unroll 4
      for (int p = 0; p < P; p++) {
        const std::byte* at = panel + p * apart + k * kPanelRows * L::kBytes;
        const __m256 low = L::load(at), high = L::load(at + 8 * L::kBytes);
#pragma GCC unroll 6
        for (int m = 0; m < M; m++) {
          const __m256 column = _mm256_broadcast_ss(x + m * job.columns + k);
          __m256* a = acc + 2 * (m * P + p);
          a[0] = _mm256_fmadd_ps(low, column, a[0]);
          a[1] = _mm256_fmadd_ps(high, column, a[1]);
        }
      }
    }
    sums.push(acc);
  }
  sums.finish(acc);
#pragma GCC unroll 6
  for (int m = 0; m < M; m++)
#pragma GCC unroll 4
    for (int p = 0; p < P; p++)
      store_lanes(y + m * job.stride + p * kPanelRows, acc[2 * (m * P + p)],
                  acc[2 * (m * P + p) + 1], p + 1 < P ? kPanelRows : lanes);
}

// `count` panels side by side, M rows, in groups of P panels.
template <class L, int M, int P>
void across(const MatmulJob& job, const std::byte* panel, int64_t apart, int count, int lanes,
            const float* x, float* y) {
  int p = 0;
  for (; p + P <= count; p += P)
    block<L, M, P>(job, panel + p * apart, apart, p + P == count ? lanes : kPanelRows, x,
                   y + p * kPanelRows);
  if constexpr (P > 1)
    for (; p < count; p++)
      block<L, M, 1>(job, panel + p * apart, apart, p + 1 == count ? lanes : kPanelRows, x,
                     y + p * kPanelRows);
}

// All rows of x over up to four panels, in about equal tiles of rows.
template <class L>
void group(const MatmulJob& job, const std::byte* panel, int64_t apart, int count, int lanes,
           float* y) {
  constexpr int64_t kMost = 6;  // by a panel: as many sums as registers hold beside two of weights
  for (int64_t r = 0, m; r < job.rows; r += m) {
    const int64_t left = job.rows - r, tiles = (left + kMost - 1) / kMost;
    m = (left + tiles - 1) / tiles;
    const float* x = job.x + r * job.columns;
    float* to = y + r * job.stride;
    if (m == 6) across<L, 6, 1>(job, panel, apart, count, lanes, x, to);
    if (m == 5) across<L, 5, 1>(job, panel, apart, count, lanes, x, to);
    if (m == 4) across<L, 4, 1>(job, panel, apart, count, lanes, x, to);
    if (m == 3) across<L, 3, 2>(job, panel, apart, count, lanes, x, to);
    if (m == 2) across<L, 2, 2>(job, panel, apart, count, lanes, x, to);
    if (m == 1) across<L, 1, 4>(job, panel, apart, count, lanes, x, to);
  }
}

int lanes_of(const MatmulJob& job, int64_t last_panel) {
  const int64_t left = job.n - last_panel * kPanelRows;
  return left < kPanelRows ? int(left) : kPanelRows;
}

template <class L>
void plain(const MatmulJob& job, int64_t p0, int64_t p1) {
  for (int64_t p = p0; p < p1;) {
    const int count = p1 - p < 4 ? int(p1 - p) : 4;
    group<L>(job, job.packed + p * job.panel_bytes, job.panel_bytes, count,
             lanes_of(job, p + count - 1), job.y + p * kPanelRows);
    p += count;
  }
}

// ---- quantised weights as f32, [column][16] ----------------------------------------------------

// Column c of a block, eight lanes of it, as integers.
template <QuantForm F>
COHORT_INLINE __m256i integers(const std::byte* block, int half, int c) {
  const int at = F.nibbles ? c % 16 : c;
  const __m256i words =
      _mm256_load_si256(reinterpret_cast<const __m256i*>(block + at / 4 * 64 + 32 * half));
  const __m128i right = _mm_cvtsi32_si128(8 * (at % 4) + (F.nibbles ? c / 16 * 4 : 0));
  if constexpr (F.nibbles)
    return _mm256_sub_epi32(_mm256_and_si256(_mm256_srl_epi32(words, right), _mm256_set1_epi32(15)),
                            _mm256_set1_epi32(F.offset));
  const __m128i left = _mm_cvtsi32_si128(24 - 8 * (at % 4));
  return _mm256_sub_epi32(_mm256_srai_epi32(_mm256_sll_epi32(words, left), 24),
                          _mm256_set1_epi32(F.offset));
}

template <QuantForm F>
void widen(const MatmulJob& job, const std::byte* panel) {
  const PanelShape shape = panel_shape(F, job.columns);
  for (int64_t b = job.begin / kQuantBlock; b < job.end / kQuantBlock; b++) {
    const ScaleRecord<F> record(panel + record_at(F, shape, b));
    const BlockScales<F> scales = record.block(b % record_blocks(F));
    for (int half = 0; half < 2; half++)
      for (int c = 0; c < kQuantBlock; c++) {
        const __m256i q = integers<F>(panel + shape.quants_at + b * shape.quant_bytes, half, c);
        __m256 w = _mm256_mul_ps(scales.scale[F.halves ? c / 16 : 0][half], _mm256_cvtepi32_ps(q));
        if constexpr (F.minimum) w = _mm256_add_ps(w, scales.minimum[half]);
        _mm256_store_ps(job.scratch + (b * kQuantBlock + c) * kPanelRows + 8 * half, w);
      }
  }
}

template <QuantForm F>
void widened(const MatmulJob& job, int64_t p0, int64_t p1) {
  for (int64_t p = p0; p < p1; p++) {
    widen<F>(job, job.packed + p * job.panel_bytes);
    group<F32>(job, reinterpret_cast<const std::byte*>(job.scratch), 0, 1, lanes_of(job, p),
               job.y + p * kPanelRows);
  }
}

}  // namespace

void matmul_plain_avx2(const MatmulJob& job, int64_t p0, int64_t p1) {
  if (job.quantized) return for_form(job.type, [&](auto f) { widened<f.form>(job, p0, p1); });
  if (job.type == DType::f16) return plain<F16>(job, p0, p1);
  if (job.type == DType::bf16) return plain<Bf16>(job, p0, p1);
  plain<F32>(job, p0, p1);
}

}  // namespace cohort
