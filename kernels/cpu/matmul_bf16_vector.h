// SPDX-License-Identifier: Apache-2.0
// Products of bf16 weights in bf16 arithmetic (docs/arithmetic.md section 9), written once over a
// type L of vectors whose lanes are output rows. Included by one unit per instruction set, hence
// the unnamed namespace and no use of the standard library.
#pragma once
#include <immintrin.h>

#include "kernels/cpu/matmul_job.h"
#include "kernels/cpu/round_bf16.h"
#include "kernels/cpu/unit_sums.h"
#include "kernels/packed.h"

namespace cohort {
namespace {

#define COHORT_INLINE __attribute__((always_inline)) inline

constexpr int kChainColumns = 32;  // of a block: two chains

// The outputs of M rows of x by N vectors of weights.
struct Bf16Tile {
  const std::byte* weights;  // the first vector's, at column 0
  int64_t apart;             // bytes from panel to panel
  const float* x;            // [M][stride]
  int64_t stride;
  int64_t unit_columns;
};

// One column: x[m] times each vector of weights, onto sum.
template <class L, int M, int N>
COHORT_INLINE void add_column(const Bf16Tile& t, int64_t k, typename L::Vector (&sum)[M * N]) {
  typename L::Vector w[N];
#pragma GCC unroll 8
  for (int v = 0; v < N; v++)
    w[v] = L::load(t.weights + v / L::kPerPanel * t.apart + k * kPanelRows * 2 +
                   v % L::kPerPanel * L::kLanes * 2);
#pragma GCC unroll 8
  for (int m = 0; m < M; m++) {
    const typename L::Vector x = L::broadcast(t.x + m * t.stride + k);
#pragma GCC unroll 8
    for (int v = 0; v < N; v++) sum[m * N + v] = L::fma(w[v], x, sum[m * N + v]);
  }
}

// A block of `columns` columns from k on.
template <class L, int M, int N>
COHORT_INLINE void add_block(const Bf16Tile& t, int64_t k, int columns,
                             typename L::Vector (&acc)[M * N]) {
  typename L::Vector even[M * N], odd[M * N];
#pragma GCC unroll 16
  for (int i = 0; i < M * N; i++) even[i] = odd[i] = L::zero();
#pragma GCC unroll 2
  for (int c = 0; c + 1 < columns; c += 2) {
    add_column<L, M, N>(t, k + c, even);
    add_column<L, M, N>(t, k + c + 1, odd);
  }
  if (columns % 2 != 0) add_column<L, M, N>(t, k + columns - 1, even);
#pragma GCC unroll 16
  for (int i = 0; i < M * N; i++) acc[i] = L::add(acc[i], L::add(even[i], odd[i]));
}

// The sums of `units` units from column k on, to out [units][M * N].
template <class L, int M, int N>
__attribute__((noinline)) void unit_sums(const Bf16Tile& t, int64_t k, int units,
                                         typename L::Vector* out) {
  for (; units > 0; units--, out += M * N) {
    typename L::Vector acc[M * N];
#pragma GCC unroll 16
    for (auto& a : acc) a = L::zero();
    const int64_t end = k + t.unit_columns;
    for (; end - k >= kChainColumns; k += kChainColumns)
      add_block<L, M, N>(t, k, kChainColumns, acc);
    if (k < end) add_block<L, M, N>(t, k, int(end - k), acc);
    k = end;
#pragma GCC unroll 16
    for (int i = 0; i < M * N; i++) out[i] = acc[i];
  }
}

// The same with denormal inputs and results flushed. The compiler does not know what floating point
// depends on, so whatever is to be computed in one mode or the other is behind a call.
template <class L, int M, int N>
__attribute__((noinline)) void flushed_unit_sums(const Bf16Tile& t, int64_t k, int units,
                                                 typename L::Vector* out) {
  constexpr unsigned kFlush = 1u << 15 | 1u << 6;  // FTZ and DAZ: Intel SDM volume 1, 10.2.3
  const unsigned mode = _mm_getcsr();
  _mm_setcsr(mode | kFlush);
  unit_sums<L, M, N>(t, k, units, out);
  _mm_setcsr(mode);
}

// outputs: from the tile's first on, or more.
template <class L, int M, int N>
void tile(const MatmulJob& job, const Bf16Tile& t, int64_t outputs, float* y) {
  constexpr int kUnits = 8;  // at once, as changing the mode takes as long as some dozen products
  typename L::Vector some[kUnits * M * N], acc[M * N];
  UnitSums<typename L::Vector, M * N> sums;  // whose additions flush nothing
  for (int64_t k = job.begin; k < job.end;) {
    const int64_t left = (job.end - k) / job.unit_columns;
    const int units = left < kUnits ? int(left) : kUnits;
    flushed_unit_sums<L, M, N>(t, k, units, some);
    for (int u = 0; u < units; u++) {
#pragma GCC unroll 16
      for (int i = 0; i < M * N; i++) acc[i] = some[u * M * N + i];
      sums.push(acc);
    }
    k += units * job.unit_columns;
  }
  sums.finish(acc);
#pragma GCC unroll 8
  for (int m = 0; m < M; m++)
#pragma GCC unroll 8
    for (int v = 0; v < N; v++)
      L::store(y + m * job.stride + v * L::kLanes, acc[m * N + v], outputs - v * L::kLanes);
}

// M rows by `vectors` vectors of weights side by side, N at a time while there are so many.
template <class L, int M, int N>
COHORT_INLINE void across(const MatmulJob& job, const std::byte* panel, int vectors,
                          int64_t outputs, const float* x, float* y) {
  const auto at = [&](int v) {
    return Bf16Tile{panel + v / L::kPerPanel * job.panel_bytes + v % L::kPerPanel * L::kLanes * 2,
                    job.panel_bytes, x, job.bf16.stride, job.unit_columns};
  };
  int v = 0;
  for (; v + N <= vectors; v += N)
    tile<L, M, N>(job, at(v), outputs - v * L::kLanes, y + v * L::kLanes);
  for (; N > 1 && v < vectors; v++)
    tile<L, M, 1>(job, at(v), outputs - v * L::kLanes, y + v * L::kLanes);
}

// Rows of x from r on, M at a time while there are so many, over some panels.
template <class L, int M>
COHORT_INLINE void take_rows(const MatmulJob& job, const std::byte* panel, int vectors,
                             int64_t outputs, float* y, int64_t& r) {
  for (; job.rows - r >= M; r += M)
    across<L, M, L::template kVectors<M>>(job, panel, vectors, outputs,
                                          job.bf16.wide + r * job.bf16.stride, y + r * job.stride);
}

template <class L>
void multiply_bf16(const MatmulJob& job, int64_t p0, int64_t p1) {
  for (int64_t p = p0; p < p1; p += 4) {
    const int vectors = int(p1 - p < 4 ? p1 - p : 4) * L::kPerPanel;
    const std::byte* panel = job.packed + p * job.panel_bytes;
    const int64_t outputs = job.n - p * kPanelRows;
    float* y = job.y + p * kPanelRows;
    int64_t r = 0;
    take_rows<L, L::kMostRows>(job, panel, vectors, outputs, y, r);
    take_rows<L, 4>(job, panel, vectors, outputs, y, r);
    take_rows<L, 2>(job, panel, vectors, outputs, y, r);
    take_rows<L, 1>(job, panel, vectors, outputs, y, r);
  }
}

}  // namespace
}  // namespace cohort
