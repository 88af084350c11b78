// SPDX-License-Identifier: Apache-2.0
// bf16 weights times rows rounded to bf16 on tiles: the arithmetic of docs/arithmetic.md section 9
// is that of the tile unit, so a unit's sum stays in its tile from block to block. Tiles: see
// HardwareTiles. Included by units compiled for AVX-512.
#pragma once
#include <immintrin.h>

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/matmul_job.h"
#include "kernels/cpu/unit_sums.h"
#include "kernels/packed.h"

namespace cohort {
namespace {

constexpr int kTileColumns = 32;
constexpr int kBf16ChunkBlocks = 16;  // of two panels: 32 KiB stay in the first-level cache
constexpr int kBf16StripTiles = 16;   // row tiles that share a chunk
static_assert(kRowTile == kTileRows && kPanelRows == kTileRows);

struct Bf16TileScratch {
  TileBytes w[2][kBf16ChunkBlocks];  // [panel]
  TileBytes sums[kBf16StripTiles][2];
  UnitSums<__m512, kRowTile> units[kBf16StripTiles][2];
};
static_assert(sizeof(Bf16TileScratch) <= kTileScratchBytes);

// Two columns of 16 lanes, one after the other, become pairs.
struct PairOrder {
  alignas(64) uint16_t at[32];
  constexpr PairOrder() : at() {
    for (int i = 0; i < 32; i++) at[i] = uint16_t(i / 2 + i % 2 * 16);
  }
};

// 32 columns of a panel a tile.
[[maybe_unused]] static void pair_columns(const uint16_t* from, int64_t tiles, TileBytes* to) {
  static constexpr PairOrder kOrder;
  const __m512i order = _mm512_load_si512(kOrder.at);
  for (int64_t i = 0; i < tiles; i++)
#pragma GCC unroll 16
    for (int row = 0; row < kTileRows; row++, from += kTileColumns)
      _mm512_store_si512(to[i].bytes + row * kTileRowBytes,
                         _mm512_permutexvar_epi16(order, _mm512_loadu_si512(from)));
}

[[maybe_unused]] static void load_sums(const TileBytes& from, __m512 (&to)[kRowTile]) {
#pragma GCC unroll 16
  for (int m = 0; m < kRowTile; m++) to[m] = _mm512_load_ps(from.bytes + m * kTileRowBytes);
}

// Four tiles of sums, which hide the latency of products: two row tiles by two panels, or four by
// one. Sum i is of row tile i / panels and panel i % panels. Row tiles may be the same one: its
// sums are then computed more than once.
struct Bf16Operands {
  const uint16_t* x[4];  // rows of each row tile, at the chunk's first column
  int64_t x_bytes;       // from row to row
  int64_t blocks;
  TileBytes* sums[4];
  const std::byte* next[2];  // weights to fetch meanwhile, of each panel; or null
};

// The products of block b.
template <int kPanels, class Tiles>
__attribute__((always_inline)) inline void add_bf16_block(Tiles& tiles,
                                                          const Bf16TileScratch& scratch,
                                                          const Bf16Operands& in, int64_t b) {
  const int64_t k = b * kTileColumns;
  tiles.template load<6>(scratch.w[0][b].bytes, kTileRowBytes);
  tiles.template load<4>(in.x[0] + k, in.x_bytes);
  tiles.template dot<0, 4, 6>();
  tiles.template load<5>(in.x[1] + k, in.x_bytes);
  if constexpr (kPanels == 2) {
    tiles.template dot<2, 5, 6>();
    tiles.template load<7>(scratch.w[1][b].bytes, kTileRowBytes);
    tiles.template dot<1, 4, 7>();
    tiles.template dot<3, 5, 7>();
  } else {
    tiles.template dot<1, 5, 6>();
    tiles.template load<4>(in.x[2] + k, in.x_bytes);
    tiles.template dot<2, 4, 6>();
    tiles.template load<5>(in.x[3] + k, in.x_bytes);
    tiles.template dot<3, 5, 6>();
  }
}

template <int kPanels, class Tiles>
void add_bf16_chunk(Tiles& tiles, const Bf16TileScratch& scratch, Bf16Operands in) {
  tiles.template load<0>(in.sums[0]->bytes, kTileRowBytes);
  tiles.template load<1>(in.sums[1]->bytes, kTileRowBytes);
  tiles.template load<2>(in.sums[2]->bytes, kTileRowBytes);
  tiles.template load<3>(in.sums[3]->bytes, kTileRowBytes);
  for (int64_t b = 0; b < in.blocks; b++) {
    for (int p = 0; p < kPanels; p++)
      for (int at = 0; in.next[p] && at < int(sizeof(TileBytes)); at += 64)
        _mm_prefetch(in.next[p] + b * int64_t(sizeof(TileBytes)) + at, _MM_HINT_T1);
    add_bf16_block<kPanels>(tiles, scratch, in, b);
  }
  tiles.template store<0>(in.sums[0]->bytes, kTileRowBytes);
  tiles.template store<1>(in.sums[1]->bytes, kTileRowBytes);
  tiles.template store<2>(in.sums[2]->bytes, kTileRowBytes);
  tiles.template store<3>(in.sums[3]->bytes, kTileRowBytes);
}

// Columns [k0, k1) of panels p .. by row tiles [t0, t0 + count).
template <int kPanels, class Tiles>
void add_bf16_columns(Tiles& tiles, const MatmulJob& job, int64_t p, int64_t t0, int64_t count,
                      int64_t k0, int64_t k1, Bf16TileScratch& scratch) {
  constexpr int kTiles = 4 / kPanels;
  Bf16Operands in{};
  in.x_bytes = job.bf16.stride * 2;
  in.blocks = (k1 - k0) / kTileColumns;
  for (int i = 0; i < kPanels; i++) {
    const auto* panel = reinterpret_cast<const uint16_t*>(job.packed + (p + i) * job.panel_bytes);
    pair_columns(panel + k0 * kPanelRows, in.blocks, scratch.w[i]);
    in.next[i] = reinterpret_cast<const std::byte*>(panel + k1 * kPanelRows);
  }
  for (int64_t t = 0; t < count; t += kTiles) {
    for (int i = 0; i < 4; i++) {
      const int64_t wanted = t + i / kPanels, tile = wanted < count ? wanted : count - 1;
      in.x[i / kPanels] = job.bf16.narrow + (t0 + tile) * kRowTile * job.bf16.stride + k0;
      in.sums[i] = &scratch.sums[tile][i % kPanels];
    }
    add_bf16_chunk<kPanels>(tiles, scratch, in);
    in.next[0] = in.next[1] = nullptr;
  }
}

// The sums of a whole unit go into the tree.
[[maybe_unused]] static void end_unit(UnitSums<__m512, kRowTile>& units, TileBytes& sums) {
  __m512 acc[kRowTile];
  load_sums(sums, acc);
  units.push(acc);
  for (int m = 0; m < kTileRows; m++)
    _mm512_store_ps(sums.bytes + m * kTileRowBytes, _mm512_setzero_ps());
}

// Panels p .. by row tiles [t0, t0 + count).
template <int kPanels, class Tiles>
void multiply_bf16_strip(Tiles& tiles, const MatmulJob& job, int64_t p, int64_t t0, int64_t count) {
  constexpr int64_t kChunk = kBf16ChunkBlocks * kTileColumns;
  Bf16TileScratch& scratch = *reinterpret_cast<Bf16TileScratch*>(job.scratch);
  __builtin_memset(scratch.sums, 0, size_t(count) * sizeof scratch.sums[0]);
  for (int64_t t = 0; t < count; t++)
    for (auto& units : scratch.units[t]) units.clear();
  for (int64_t unit = job.begin; unit < job.end; unit += job.unit_columns) {
    const int64_t end = unit + job.unit_columns;
    for (int64_t k = unit; k < end; k += kChunk)
      add_bf16_columns<kPanels>(tiles, job, p, t0, count, k, k + kChunk < end ? k + kChunk : end,
                                scratch);
    for (int64_t t = 0; t < count; t++)
      for (int i = 0; i < kPanels; i++) end_unit(scratch.units[t][i], scratch.sums[t][i]);
  }
}

// Writes the sums of one row tile and panel.
[[maybe_unused]] static void write_bf16_rows(const MatmulJob& job, int64_t p, int64_t row,
                                             UnitSums<__m512, kRowTile>& units) {
  const int64_t n = job.n - p * kPanelRows;
  const auto lanes = __mmask16(n < kPanelRows ? (1u << n) - 1 : 0xffffu);
  float* y = job.y + row * job.stride + p * kPanelRows;
  __m512 acc[kRowTile];
  units.finish(acc);
#pragma GCC unroll 16
  for (int m = 0; m < kRowTile; m++)
    if (row + m < job.rows) _mm512_mask_storeu_ps(y + m * job.stride, lanes, acc[m]);
}

template <int kPanels, class Tiles>
void multiply_bf16_panels(Tiles& tiles, const MatmulJob& job, int64_t p, int64_t t0,
                          int64_t count) {
  multiply_bf16_strip<kPanels>(tiles, job, p, t0, count);
  auto& scratch = *reinterpret_cast<Bf16TileScratch*>(job.scratch);
  for (int64_t t = 0; t < count; t++)
    for (int i = 0; i < kPanels; i++)
      write_bf16_rows(job, p + i, (t0 + t) * kRowTile, scratch.units[t][i]);
}

// MatmulPanels. Units that end within a block, and few rows, are left to vectors, whose bits are
// the same.
template <class Tiles>
void multiply_bf16_on_tiles(const MatmulJob& job, int64_t p0, int64_t p1) {
  constexpr int64_t kFewestRows = 8;  // below, memory decides, and less than half a tile is used
  const bool whole_blocks = job.unit_columns % kTileColumns == 0;
  if (!job.bf16_tiles || !whole_blocks || job.rows < kFewestRows)
    return matmul_bf16_avx512(job, p0, p1);
  Tiles tiles;
  tiles.configure(kTileRows, kTileColumns / 2);
  const int64_t row_tiles = (job.rows + kRowTile - 1) / kRowTile;
  for (int64_t t = 0; t < row_tiles; t += kBf16StripTiles) {
    const int64_t rest = row_tiles - t, count = rest < kBf16StripTiles ? rest : kBf16StripTiles;
    int64_t p = p0;
    for (; p + 2 <= p1; p += 2) multiply_bf16_panels<2>(tiles, job, p, t, count);
    if (p < p1) multiply_bf16_panels<1>(tiles, job, p, t, count);
  }
  tiles.release();
}

}  // namespace
}  // namespace cohort
