// SPDX-License-Identifier: Apache-2.0
// Products of bf16 weights in bf16 arithmetic (docs/arithmetic.md section 9), written once over a
// type L of vectors whose lanes are output rows. Included by one unit per instruction set, hence
// the unnamed namespace and no use of the standard library.
//
// A panel is L::kPerPanel vectors, whose lanes are its rows in an order that only L knows. Four
// panels go side by side, block of 32 columns by block, so that a row of x is in the cache for all
// of them; in a block L::kVectors<rows of x> vectors at a time, as registers hold two chains for
// each.
#pragma once
#include <immintrin.h>

#include "kernels/cpu/matmul_job.h"
#include "kernels/cpu/round_bf16.h"
#include "kernels/cpu/unit_sums.h"
#include "kernels/packed.h"

namespace cohort {
namespace {

#define COHORT_INLINE __attribute__((always_inline)) inline

constexpr int kChainColumns = 32;             // of a block
constexpr int kColumnBytes = kPanelRows * 2;  // of a panel
constexpr int kOffsets = kColumnBytes / 4;    // a column of a panel for one of x
constexpr int kMostPanels = 4;                // side by side
// How far ahead of the block in use a panel's weights are asked for. Panels are back to back, so
// that it runs into the next one.
constexpr int kFetchAhead = 4096;

// The outputs of some rows of x by some panels.
struct Bf16Tile {
  const char* weights;  // the first panel's, at column 0
  int64_t apart;        // bytes from panel to panel
  const float* x;       // the first row's
  int64_t stride;
  int64_t unit_columns;
  bool fetch;  // whether weights may come from memory: they do for the first rows of x
};

// M rows of x. A column is found at an offset in bytes, which times kOffsets leads to its weights,
// and at a second one for the other half of the rows. Compilers would keep an address for each row
// and run out of registers.
template <int M>
struct Bf16Inputs {
  static constexpr int kBases = (M + 1) / 2;
  const char* base[kBases];
  int64_t apart;  // bytes from one half of the rows to the other

  COHORT_INLINE explicit Bf16Inputs(const Bf16Tile& t) : apart(kBases * t.stride * 4) {
#pragma GCC unroll 8
    for (int m = 0; m < kBases; m++) {
      base[m] = reinterpret_cast<const char*>(t.x + m * t.stride);
      asm("" : "+r"(base[m]));  // an address of its own, for all that the compiler knows
    }
  }
  COHORT_INLINE const float* at(int m, int64_t low, int64_t high) const {
    return reinterpret_cast<const float*>(m < kBases ? base[m] + low : base[m - kBases] + high);
  }
};

// A block of `columns` columns: M rows by G vectors, the first one of the panel at `weights` being
// First. acc [G][M].
template <class L, int M, int G, int First>
COHORT_INLINE void add_block(const Bf16Inputs<M>& x, const char* weights, int64_t apart,
                             int64_t column, int columns, typename L::Vector* acc) {
  using V = typename L::Vector;
  V even[G * M], odd[G * M];
#pragma GCC unroll 32
  for (int i = 0; i < G * M; i++) even[i] = odd[i] = L::zero();
  int64_t low = column * 4, high = low + x.apart;
#pragma GCC unroll 1
  for (int pairs = columns / 2; pairs > 0; pairs--, low += 8, high += 8) {
    V w[2 * G];
#pragma GCC unroll 4
    for (int g = 0; g < G; g++)
      L::load_pair(weights + (First + g) / L::kPerPanel * apart + low * kOffsets,
                   (First + g) % L::kPerPanel, w[2 * g], w[2 * g + 1]);
#pragma GCC unroll 16
    for (int m = 0; m < M; m++) {
      const float* at = x.at(m, low, high);
#pragma GCC unroll 4
      for (int g = 0; g < G; g++)
        even[g * M + m] = L::fma(w[2 * g], L::broadcast(at), even[g * M + m]);
#pragma GCC unroll 4
      for (int g = 0; g < G; g++)
        odd[g * M + m] = L::fma(w[2 * g + 1], L::broadcast(at + 1), odd[g * M + m]);
    }
  }
  if (columns % 2 != 0)
#pragma GCC unroll 4
    for (int g = 0; g < G; g++) {
      const V w = L::load(weights + (First + g) / L::kPerPanel * apart + low * kOffsets,
                          (First + g) % L::kPerPanel);
#pragma GCC unroll 16
      for (int m = 0; m < M; m++)
        even[g * M + m] = L::fma(w, L::broadcast(x.at(m, low, high)), even[g * M + m]);
    }
#pragma GCC unroll 32
  for (int i = 0; i < G * M; i++) acc[i] = L::add(acc[i], L::add(even[i], odd[i]));
}

// The same for all vectors of P panels. acc [vectors][M].
template <class L, int M, int P>
COHORT_INLINE void add_panels(const Bf16Inputs<M>& x, const Bf16Tile& t, int64_t column,
                              int columns, typename L::Vector* acc) {
  constexpr int kWanted = L::template kVectors<M>, kAll = P * L::kPerPanel;
  constexpr int G = kWanted < kAll ? kWanted : kAll;
  constexpr int kStep = G < L::kPerPanel ? 1 : G / L::kPerPanel;  // panels
  const char* weights = t.weights;
#pragma GCC unroll 1
  for (int p = 0; p < P; p += kStep, weights += kStep * t.apart, acc += kStep * L::kPerPanel * M) {
    if (kStep == 1 && t.fetch)  // several panels at a time are read faster without
      for (int i = 0; i < kChainColumns * kColumnBytes; i += 64)
        _mm_prefetch(weights + column * kColumnBytes + kFetchAhead + i, _MM_HINT_T0);
    add_block<L, M, G, 0>(x, weights, t.apart, column, columns, acc);
    if constexpr (G < L::kPerPanel)
      add_block<L, M, G, G>(x, weights, t.apart, column, columns, acc + G * M);
  }
}

// The sums of `units` units from column k on, to out [units][vectors of P panels][M].
template <class L, int M, int P>
__attribute__((noinline)) void unit_sums(const Bf16Tile& t, int64_t k, int units,
                                         typename L::Vector* out) {
  constexpr int kSums = P * L::kPerPanel * M;
  const Bf16Inputs<M> x(t);
  for (; units > 0; units--, out += kSums) {
    for (int i = 0; i < kSums; i++) out[i] = L::zero();
    const int64_t end = k + t.unit_columns;
    for (; end - k >= kChainColumns; k += kChainColumns)
      add_panels<L, M, P>(x, t, k, kChainColumns, out);
    if (k < end) add_panels<L, M, P>(x, t, k, int(end - k), out);
    k = end;
  }
}

// The same with denormal inputs and results flushed. The compiler does not know what floating point
// depends on, so whatever is to be computed in one mode or the other is behind a call.
template <class L, int M, int P>
__attribute__((noinline)) void flushed_unit_sums(const Bf16Tile& t, int64_t k, int units,
                                                 typename L::Vector* out) {
  constexpr unsigned kFlush = 1u << 15 | 1u << 6;  // FTZ and DAZ: Intel SDM volume 1, 10.2.3
  const unsigned mode = _mm_getcsr();
  _mm_setcsr(mode | kFlush);
  unit_sums<L, M, P>(t, k, units, out);
  _mm_setcsr(mode);
}

// outputs: from the tile's first on, or more.
template <class L, int M, int P>
void tile(const MatmulJob& job, const Bf16Tile& t, int64_t outputs, float* y) {
  using V = typename L::Vector;
  constexpr int kSums = P * L::kPerPanel * M;
  constexpr int kUnits = 8;  // at once, as changing the mode takes as long as some dozen products
  V some[kUnits * kSums];
  UnitSums<V, kSums> sums;  // whose additions flush nothing
  for (int64_t k = job.begin; k < job.end;) {
    const int64_t left = (job.end - k) / job.unit_columns;
    const int units = left < kUnits ? int(left) : kUnits;
    flushed_unit_sums<L, M, P>(t, k, units, some);
    for (int u = 0; u < units; u++) sums.push(reinterpret_cast<V(&)[kSums]>(some[u * kSums]));
    k += units * job.unit_columns;
  }
  V(&all)[kSums] = reinterpret_cast<V(&)[kSums]>(some);
  sums.finish(all);
  for (int m = 0; m < M; m++)
    for (int p = 0; p < P; p++)
      L::store(y + m * job.stride + p * kPanelRows, all + p * L::kPerPanel * M + m, M,
               outputs - p * kPanelRows);
}

using Bf16TileKernel = void(const MatmulJob& job, const Bf16Tile& t, int64_t outputs, float* y);

// Rows in about equal tiles; four panels side by side, the last ones one by one. L::kFour and kOne
// are the tiles of 1, 2, .. rows.
template <class L>
void multiply_bf16(const MatmulJob& job, int64_t p0, int64_t p1) {
  for (int64_t p = p0; p < p1;) {
    const bool four = p1 - p >= kMostPanels;
    for (int64_t r = 0, m; r < job.rows; r += m) {
      const int64_t left = job.rows - r, tiles = (left + L::kMostRows - 1) / L::kMostRows;
      m = (left + tiles - 1) / tiles;
      const Bf16Tile t = {reinterpret_cast<const char*>(job.packed) + p * job.panel_bytes,
                          job.panel_bytes,
                          job.bf16.wide + r * job.bf16.stride,
                          job.bf16.stride,
                          job.unit_columns,
                          r == 0};
      (four ? L::kFour : L::kOne)[m - 1](job, t, job.n - p * kPanelRows,
                                         job.y + r * job.stride + p * kPanelRows);
    }
    p += four ? kMostPanels : 1;
  }
}

}  // namespace
}  // namespace cohort
