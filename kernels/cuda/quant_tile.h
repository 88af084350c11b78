// SPDX-License-Identifier: Apache-2.0
// f16 or bf16 activations times quantised weights, a tile of a block of threads: shared by products
// with one matrix and with a group of them. Integers go through mma as they are (every one is exact
// in both types), and the f32 sum of each 32 columns is scaled: cheaper than scaling weights, and
// more exact. Within a slice (slices.h) there is one chain of fma over records (add_record).
#pragma once
#include "kernels/cuda/portable.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/slices.h"

namespace cohort::cuda {

// ---- few rows: a block of 8 warps for a panel of 32 output rows ----

template <class T, class Kind, int N>
GPU_FN void load_tokens(const T* x, const std::int64_t (&row)[N], std::int64_t column, int lane,
                        QuantTokens<N>& out) {
#pragma unroll
  for (int i = 0; i < N; i++)
#pragma unroll
    for (int step = 0; step < 2; step++) {
      const auto v = gpu::load8<uint2>(x + row[i] + column + step * 16 + lane % 4 * 4);
      out[i][step][0] = v.x;
      out[i][step][1] = v.y;
    }
}

// Records [begin, end) of a panel. As many loads are on their way as hide memory's latency.
template <class T, class Kind, int N>
GPU_FN void sum_slice(const QuantProduct& p, std::int64_t panel, std::int64_t begin,
                      std::int64_t end, int lane, QuantSums<N>& sums) {
  constexpr int kAhead = N == 1 ? 4 / Kind::kWords : 2;
  const T* x = static_cast<const T*>(p.x);
  std::int64_t row[N];
#pragma unroll
  for (int i = 0; i < N; i++) row[i] = least(i * 8 + lane / 4, p.rows - 1) * p.columns;
  for (std::int64_t b = begin; b < end; b += kAhead) {
    QuantRecord<Kind> record[kAhead];
    QuantTokens<N> tokens[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; u++) {
      const std::int64_t at = least(b + u, end - 1);
      load_record(p.w, record_at(p.w, panel, at), lane, record[u]);
      load_tokens<T, Kind, N>(x, row, at * 32, lane, tokens[u]);
    }
#pragma unroll
    for (int u = 0; u < kAhead; u++)
      if (b + u < end) add_record<T, Kind, N>(record[u], tokens[u], p.w.offset, sums);
  }
}

// Shared memory of a block.
template <int N>
using FewSlices = float[kSlices][2 * N * 4 * 32];

template <class T, class Kind, int N>
GPU_FN void few_tile(const QuantProduct& p, std::int64_t panel, std::int64_t unit,
                     FewSlices<N>& slices) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int records = static_cast<int>(p.unit_columns / 32);
  float sums[2][N][4] = {};
  sum_slice<T, Kind, N>(p, panel, unit * records + slice_begin(records, warp),
                        unit * records + slice_begin(records, warp + 1), lane, sums);
  put_slices<N>(sums, slices, [&](int token, int row, float total) {
    put_result<T>(p, unit, token, panel * kQuantPanel + row, total);
  });
}

// ---- many rows: a block of 8 warps for 4 panels by 64 tokens ----

constexpr int kTileTokens = 64, kWarpTokens = 32, kTilePanels = 4;
constexpr int kStageColumns = 64, kStages = 2;
constexpr int kStageBytes = kTileTokens * kStageColumns * 2;

// Where 8 columns of a token lie in a stage. Half a warp reads 32 bytes of four tokens at a time;
// the exclusive or lets them meet no bank twice.
GPU_FN int staged(int token, int eight) { return (token * 8 + (eight ^ token % 4 * 2)) * 16; }

// Columns [column, column + 64) of the tile's rows, zeros from `end` on.
template <class T>
GPU_FN void fetch_tokens(const QuantProduct& p, std::int64_t first, std::int64_t column,
                         std::int64_t end, unsigned char* stage) {
  const T* x = static_cast<const T*>(p.x);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int chunk = i * 256 + static_cast<int>(threadIdx.x), token = chunk / 8,
              at = chunk % 8 * 8;
    const bool inside = column + at < end;
    const std::int64_t from = least(first + token, p.rows - 1) * p.columns + column + at;
    gpu::cp_async16(stage + staged(token, at / 8), inside ? x + from : x, inside);
  }
}

// One warp's sums over a unit: of the slice at hand in registers, of those before in shared memory,
// [element][thread], which two blocks on a multiprocessor have room for.
struct ManySums {
  static constexpr int kTiles = kWarpTokens / 8, kElements = 2 * kTiles * 4;
  float slice[2][kTiles][4];
  float* totals;  // of this thread
  int at;         // the slice

  GPU_FN float& total(int tile, int i, int j) {
    return totals[((tile * kTiles + i) * 4 + j) * 256];
  }
  GPU_FN void close() {
#pragma unroll
    for (int tile = 0; tile < 2; tile++)
#pragma unroll
      for (int i = 0; i < kTiles; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
          float& t = total(tile, i, j);
          t = at == 0 ? slice[tile][i][j] : __fadd_rn(t, slice[tile][i][j]);
          slice[tile][i][j] = 0.0f;
        }
    at++;
  }
};

template <class T, class Kind>
GPU_FN void add_staged(const QuantRecord<Kind>& record, const unsigned char* stage, int first,
                       int half, int offset, int lane, ManySums& sums) {
  QuantTokens<ManySums::kTiles> tokens;
#pragma unroll
  for (int i = 0; i < ManySums::kTiles; i++)
#pragma unroll
    for (int step = 0; step < 2; step++) {
      const int eight = half * 4 + step * 2 + lane % 4 / 2;
      const auto v =
          gpu::load8<uint2>(stage + staged(first + i * 8 + lane / 4, eight) + lane % 2 * 8);
      tokens[i][step][0] = v.x;
      tokens[i][step][1] = v.y;
    }
  add_record<T, Kind, ManySums::kTiles>(record, tokens, offset, sums.slice);
}

// The loop over a unit's columns, in stages of two records. panel: of this warp; all warps take
// part in fetching, whether their panel exists or not.
template <class T, class Kind>
GPU_FN void sum_unit(const QuantProduct& p, std::int64_t panel, std::int64_t first_record,
                     std::int64_t first_token, unsigned char* shared, ManySums& sums) {
  const int lane = threadIdx.x % 32, group = threadIdx.x / 32 / kTilePanels;
  const int records = static_cast<int>(p.unit_columns / 32), steps = (records + 1) / 2;
  const std::int64_t begin = first_record * 32, end = begin + p.unit_columns;
  const auto fetch = [&](int step) {
    if (step < steps)
      fetch_tokens<T>(p, first_token, begin + step * kStageColumns, end,
                      shared + step % kStages * kStageBytes);
    gpu::cp_async_commit();  // an empty group where there is nothing left
  };
  for (int s = 0; s < kStages - 1; s++) fetch(s);
  // Quants are fetched a record ahead; scales, which registers have no room for, as they are
  // needed: other warps work meanwhile.
  const unsigned char* from = record_at(p.w, panel, first_record);
  QuantRecord<Kind> record;
  uint4 next[Kind::kWords];
  load_quants<Kind>(from, lane, next);
  for (int step = 0; step < steps; step++) {
    gpu::cp_async_wait<kStages - 2>();
    __syncthreads();
    fetch(step + kStages - 1);
    const unsigned char* stage = shared + step % kStages * kStageBytes;
#pragma unroll 1  // both at once would not fit the registers
    for (int h = 0; h < 2; h++) {
      const int b = step * 2 + h;
      if (b >= records) break;
#pragma unroll
      for (int i = 0; i < Kind::kWords; i++) record.word[i] = next[i];
      load_scales(p.w, from, lane / 4, record);
      if (b + 1 < records) from += p.w.record_bytes;
      load_quants<Kind>(from, lane, next);
      while (b == slice_begin(records, sums.at + 1)) sums.close();
      add_staged<T, Kind>(record, stage, group * kWarpTokens, h, p.w.offset, lane, sums);
    }
  }
  while (sums.at < kSlices) sums.close();
}

// Shared memory of a block.
struct ManyMemory {
  uint4 stages[kStages * kStageBytes / 16];
  float totals[ManySums::kElements * 256];
};

// Panels [first_panel, first_panel + 4) by tokens [first, first + 64) of a unit.
template <class T, class Kind>
GPU_FN void many_tile(const QuantProduct& p, std::int64_t first_panel, std::int64_t first,
                      std::int64_t unit, ManyMemory& memory) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const std::int64_t panel = first_panel + warp % kTilePanels;
  const std::int64_t last = (p.n + kQuantPanel - 1) / kQuantPanel - 1;
  ManySums sums = {};
  sums.totals = &memory.totals[threadIdx.x];
  sum_unit<T, Kind>(p, least(panel, last), unit * (p.unit_columns / 32), first,
                    reinterpret_cast<unsigned char*>(&memory.stages[0]), sums);
#pragma unroll
  for (int tile = 0; tile < 2; tile++)
#pragma unroll
    for (int i = 0; i < ManySums::kTiles; i++)
#pragma unroll
      for (int j = 0; j < 4; j++)
        put_result<T>(p, unit, first + warp / kTilePanels * kWarpTokens + result_token(lane, i, j),
                      panel * kQuantPanel + result_row(lane, tile, j), sums.total(tile, i, j));
}

}  // namespace cohort::cuda
