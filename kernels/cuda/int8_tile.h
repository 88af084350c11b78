// SPDX-License-Identifier: Apache-2.0
// int8 activations times quantised weights, in the CPU's order (docs/arithmetic.md section 1), a
// tile of a block of threads: shared by products with one matrix and with a group of them. The
// integer product of 32 columns is exact, and one chain of fma runs over records, so the bits are
// those of kernels/cpu for every number of rows.
#pragma once
#include "kernels/cuda/portable.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/quant_mma.h"

namespace cohort::cuda {

// Operand B of a record for 8 N tokens, and what belongs to the two tokens of each tile whose sums
// a lane holds.
template <int N>
struct Int8Tokens {
  std::uint32_t q[N][2];
  float d[N][2], s[N][2];
};

// What a lane reads of: rows of quants (as B), columns of scales (as D).
template <int N>
struct TokenPlaces {
  std::int64_t quants[N], scales[N][2];
};

template <int N>
GPU_FN TokenPlaces<N> token_places(const QuantProduct& p, std::int64_t first, int lane) {
  const auto inside = [&](std::int64_t t) { return t < p.rows ? t : p.rows - 1; };
  TokenPlaces<N> out;
#pragma unroll
  for (int i = 0; i < N; i++) {
    out.quants[i] = inside(first + i * 8 + lane / 4) * p.columns + lane % 4 * 4;
    out.scales[i][0] = inside(first + result_token(lane, i, 0));
    out.scales[i][1] = inside(first + result_token(lane, i, 1));
  }
  return out;
}

template <class Kind, int N>
GPU_FN void load_int8(const Int8Rows& x, const TokenPlaces<N>& places, std::int64_t block,
                      Int8Tokens<N>& out) {
#pragma unroll
  for (int i = 0; i < N; i++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      out.q[i][h] = gpu::load4<std::uint32_t>(x.q + places.quants[i] + block * 32 + h * 16);
      out.d[i][h] = x.d[block * x.stride + places.scales[i][h]];
      if constexpr (Kind::kMinimum) out.s[i][h] = x.s[block * x.stride + places.scales[i][h]];
    }
}

// dots[s]: of all 32 columns, or of each half.
template <class Kind>
GPU_FN void integer_products(const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                             std::int32_t (&dots)[Kind::kScales][4]) {
  if constexpr (Kind::kHalves) {
    const std::uint32_t first[4] = {a[0], a[1], 0, 0}, second[4] = {0, 0, a[2], a[3]};
    gpu::mma_m16n8k32_s8(dots[0], first, b);
    gpu::mma_m16n8k32_s8(dots[1], second, b);
  } else {
    gpu::mma_m16n8k32_s8(dots[0], a, b);
  }
}

// What a record adds to the sums of a warp, as terms of their chains: calls each(tile, token tile,
// element of operand D, term, a, b) for sum = fma(a, b, sum), the terms of a sum in order.
template <class Kind>
constexpr int kTerms = Kind::kScales + (Kind::kMinimum ? 1 : 0);

template <class Kind, int N, class Each>
GPU_FN void int8_terms(const QuantRecord<Kind>& r, const Int8Tokens<N>& x, int offset,
                       const Each& each) {
#pragma unroll
  for (int tile = 0; tile < 2; tile++) {
    std::uint32_t a[4];
#pragma unroll
    for (int k = 0; k < 4; k++) a[k] = signed_quants(r, tile, k / 2, k % 2, offset);
#pragma unroll
    for (int i = 0; i < N; i++) {
      std::int32_t dots[Kind::kScales][4] = {};
      integer_products<Kind>(a, x.q[i], dots);
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const int row = tile * 2 + j / 2;
#pragma unroll
        for (int s = 0; s < Kind::kScales; s++)
          each(tile, i, j, s, __fmul_rn(r.scale[row][s], x.d[i][j % 2]),
               __int2float_rn(dots[s][j]));
        if constexpr (Kind::kMinimum)
          each(tile, i, j, Kind::kScales, r.minimum[row], x.s[i][j % 2]);
      }
    }
  }
}

// ---- many rows: a warp for a panel and 8 N tokens ----

constexpr int kInt8Panels = 4;  // of a block of as many warps
constexpr int kInt8Tiles = 4;   // of 8 tokens

// panel: of this warp.
template <class T, class Kind, int N>
GPU_FN void int8_many_tile(const QuantProduct& p, const Int8Rows& x, std::int64_t panel,
                           std::int64_t first, std::int64_t unit) {
  const int lane = threadIdx.x % 32;
  if (panel * kQuantPanel >= p.n) return;
  const std::int64_t records = p.unit_columns / 32, begin = unit * records;
  const TokenPlaces<N> places = token_places<N>(p, first, lane);
  float sums[2][N][4] = {};
  for (std::int64_t b = begin; b < begin + records; b++) {
    QuantRecord<Kind> record;
    Int8Tokens<N> tokens;
    load_record(p.w, record_at(p.w, panel, b), lane, record);
    load_int8<Kind, N>(x, places, b, tokens);
    int8_terms(record, tokens, p.w.offset, [&](int tile, int i, int j, int, float s, float q) {
      sums[tile][i][j] = __fmaf_rn(s, q, sums[tile][i][j]);
    });
  }
#pragma unroll
  for (int tile = 0; tile < 2; tile++)
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
      for (int j = 0; j < 4; j++)
        put_result<T>(p, unit, first + result_token(lane, i, j),
                      panel * kQuantPanel + result_row(lane, tile, j), sums[tile][i][j]);
}

// ---- few rows: a block of 8 warps for a panel and 8 tokens ----
// The warps multiply a record each. One thread per sum then adds their terms, record by record: the
// chain is the same, and only its integers were made side by side.

constexpr int kRound = 8;  // records, and warps

// Shared memory of a block.
template <class Kind>
using Int8Terms = float2[kRound][kTerms<Kind>][256];

template <class T, class Kind>
GPU_FN void int8_few_tile(const QuantProduct& p, const Int8Rows& x, std::int64_t panel,
                          std::int64_t first, std::int64_t unit, Int8Terms<Kind>& terms) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, thread = threadIdx.x;
  const std::int64_t records = p.unit_columns / 32, begin = unit * records;
  const TokenPlaces<1> places = token_places<1>(p, first, lane);
  QuantRecord<Kind> record;
  Int8Tokens<1> tokens;
  const auto load = [&](std::int64_t b) {
    const std::int64_t at = begin + (b < records ? b : records - 1);
    load_record(p.w, record_at(p.w, panel, at), lane, record);
    load_int8<Kind, 1>(x, places, at, tokens);
  };
  load(warp);
  float sum = 0.0f;
  for (std::int64_t b = 0; b < records; b += kRound) {
    int8_terms(record, tokens, p.w.offset, [&](int tile, int, int j, int term, float s, float q) {
      terms[warp][term][(tile * 4 + j) * 32 + lane] = make_float2(s, q);
    });
    load(b + kRound + warp);
    __syncthreads();
#pragma unroll
    for (int u = 0; u < kRound; u++)
#pragma unroll
      for (int term = 0; term < kTerms<Kind>; term++) {
        const float2 t = terms[u][term][thread];
        if (b + u < records) sum = __fmaf_rn(t.x, t.y, sum);
      }
    __syncthreads();
  }
  put_result<T>(p, unit, first + result_token(lane, 0, warp % 4),
                panel * kQuantPanel + result_row(lane, warp / 4, warp % 4), sum);
}

}  // namespace cohort::cuda
