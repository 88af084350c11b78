// SPDX-License-Identifier: Apache-2.0
// Quantised weights times int8 activations on tiles. The products of a block of 32 columns are
// integers below 2^8 times integers below 2^8, which bf16 holds exactly, and every sum of them is
// below 2^24, which f32 holds exactly: so the bf16 tile unit returns the integer of
// docs/arithmetic.md section 1, in f32 already, and neither order nor rounding inside it matters.
// (Tiles of int8 would be half empty, since every block has a scale of its own.)
//
// Tiles: see HardwareTiles. Included by units compiled for AVX-512.
#pragma once
#include <immintrin.h>

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/matmul_avx512.h"
#include "kernels/cpu/matmul_job.h"
#include "kernels/cpu/unit_sums.h"
#include "kernels/packed.h"

namespace cohort {
namespace {

// While tile instructions are in flight, vector code runs at half its pace, and a store that waits
// for its product holds up the rest. Hence: products four ahead, stores one ahead.
constexpr int kAhead = 4;         // products under way, each with a tile of sums
constexpr int kChunkBlocks = 24;  // unpacked at a time: 24 KiB stay in the first-level cache
constexpr int kStripTiles = 16;   // row tiles that share an unpacked chunk
static_assert(kRowTile == kTileRows && kPanelRows == kTileRows);

// Part of a panel made ready for tiles: row 2 g of a block holds columns 4 g and 4 g + 2 of every
// lane, row 2 g + 1 columns 4 g + 1 and 4 g + 3. It is what looking up nibbles, two bytes at a
// time, gives at once. Activations have the same order (TileRow), and sums do not mind.
struct alignas(64) Chunk {
  TileBytes w[kChunkBlocks];
  float scale[2 * kChunkBlocks][kPanelRows];  // [block], or [block][half]
  float minimum[kChunkBlocks][kPanelRows];
};

// What a row tile carries from chunk to chunk.
struct StripSums {
  __m512 acc[kRowTile];
  UnitSums<__m512, kRowTile> units;
  int left;  // products until the unit ends
};

struct TileScratch {
  Chunk chunk;
  StripSums sums[kStripTiles];
};
static_assert(sizeof(TileScratch) <= kTileScratchBytes);

// Where the bf16 of a block's columns lie among the 16-bit halves of their f32, in that order.
struct TileOrder {
  alignas(64) uint16_t at[kQuantBlock];
  constexpr TileOrder() : at() {
    for (int c = 0; c < kQuantBlock; c++) {
      const int column = c % 4 == 1 ? c + 1 : c % 4 == 2 ? c - 1 : c;
      at[c] = uint16_t(2 * column + 1);
    }
  }
};

// TileRow.
[[maybe_unused]] static void write_tile_row(const int8_t* q, int64_t blocks, int64_t block_bytes,
                                            uint16_t* tiled) {
  static constexpr TileOrder kOrder;
  const __m512i order = _mm512_load_si512(kOrder.at);
  for (int64_t b = 0; b < blocks; b++, q += block_bytes, tiled += kRowTile * kQuantBlock) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q));
    const __m512i low = _mm512_cvtepi8_epi32(_mm256_castsi256_si128(bytes));
    const __m512i high = _mm512_cvtepi8_epi32(_mm256_extracti128_si256(bytes, 1));
    _mm512_storeu_si512(
        tiled, _mm512_permutex2var_epi16(_mm512_castps_si512(_mm512_cvtepi32_ps(low)), order,
                                         _mm512_castps_si512(_mm512_cvtepi32_ps(high))));
  }
}

// Nibbles less the offset as bf16, twice, so that bit 4 of an index (the next nibble) is ignored.
template <int kOffset>
struct NibbleTable {
  alignas(64) uint16_t value[32];
  constexpr NibbleTable() : value() {
    for (int i = 0; i < 32; i++)
      value[i] = uint16_t(__builtin_bit_cast(uint32_t, float(i % 16 - kOffset)) >> 16);
  }
};

// 64 bytes of nibbles, columns 4 g .. and 16 + 4 g ..: four rows of a block's tile.
template <int kOffset>
__attribute__((always_inline)) inline void unpack_nibbles(const std::byte* from, TileBytes& to,
                                                          int g) {
  static constexpr NibbleTable<kOffset> kTable;
  const __m512i v = _mm512_loadu_si512(from), table = _mm512_load_si512(kTable.value);
  const int rows[] = {2 * g, 8 + 2 * g, 2 * g + 1, 9 + 2 * g};  // of nibbles 0 to 3 of 16 bits
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++)
    _mm512_store_si512(to.bytes + rows[i] * kTileRowBytes,
                       _mm512_permutexvar_epi16(_mm512_srli_epi16(v, unsigned(4 * i)), table));
}

// 64 bytes of integers, columns 4 g ..: two rows. The lower half of a small one's f32 is empty.
template <int kOffset>
__attribute__((always_inline)) inline void unpack_bytes(const std::byte* from, TileBytes& to,
                                                        int g) {
  const __m512i v = _mm512_sub_epi8(_mm512_loadu_si512(from), _mm512_set1_epi8(int8_t(kOffset)));
  const auto widened = [&](unsigned byte) __attribute__((always_inline)) {
    const __m512i alone = _mm512_srai_epi32(_mm512_slli_epi32(v, 24 - 8 * byte), 24);
    return _mm512_castps_si512(_mm512_cvtepi32_ps(alone));
  };
  const auto pair = [](__m512i left, __m512i right) __attribute__((always_inline)) {
    return _mm512_or_si512(_mm512_srli_epi32(left, 16), right);
  };
  _mm512_store_si512(to.bytes + 2 * g * kTileRowBytes, pair(widened(0), widened(2)));
  _mm512_store_si512(to.bytes + (2 * g + 1) * kTileRowBytes, pair(widened(1), widened(3)));
}

// Blocks [b0, b1) of a panel.
template <QuantForm F>
void unpack(const std::byte* panel, const PanelShape& shape, int64_t b0, int64_t b1, Chunk& to) {
  constexpr int kHalves = F.halves ? 2 : 1;
  for (int64_t b = b0; b < b1; b++) {
    const int64_t i = b - b0;
    const std::byte* q = panel + shape.quants_at + b * shape.quant_bytes;
    const BlockScales<F> scales(shape, panel, b);
    for (int h = 0; h < kHalves; h++) _mm512_store_ps(to.scale[i * kHalves + h], scales.scale[h]);
    if constexpr (F.minimum) _mm512_store_ps(to.minimum[i], scales.minimum);
    for (int g = 0; g < (F.nibbles ? 4 : 8); g++)
      if constexpr (F.nibbles)
        unpack_nibbles<F.offset>(q + g * 64, to.w[i], g);
      else
        unpack_bytes<F.offset>(q + g * 64, to.w[i], g);
  }
}

// A row tile and a chunk: a product is a block, or half of one where halves have scales.
struct Operands {
  const Chunk& w;
  const uint16_t* x;      // [block][16][32]
  const float *d, *s;     // [block][16]
  int products;           // of the chunk
  int unit_products;      // of a unit
  const std::byte* next;  // weights to be fetched meanwhile: `next_bytes` a product; or null
  int64_t next_bytes;
};

template <int kSlot>
struct Slot {};

// The tile of sums kSlot = product i.
template <QuantForm F, int kSlot, class Tiles>
__attribute__((always_inline)) inline void begin_product(Tiles& tiles, const Operands& in,
                                                         Slot<kSlot>, int64_t i) {
  constexpr int kHalves = F.halves ? 2 : 1, kLeft = 4 + kSlot % 2, kRight = 6 + kSlot % 2;
  if (i >= in.products) return;
  const int64_t block = i / kHalves, half = i % kHalves;
  tiles.template zero<kSlot>();
  tiles.template load<kLeft>(in.x + block * kRowTile * kQuantBlock + half * (kQuantBlock / 2),
                             kTileRowBytes);
  tiles.template load<kRight>(in.w.w[block].bytes + half * (sizeof(TileBytes) / 2), kTileRowBytes);
  tiles.template dot<kSlot, kLeft, kRight>();
}

// acc += product i, which is in sums[kSlot]; half way through, the next one is stored.
template <QuantForm F, int kSlot, class Tiles>
__attribute__((always_inline)) inline void fold(Tiles& tiles, const Operands& in, Slot<kSlot>,
                                                TileBytes (&sums)[kAhead], __m512 (&acc)[kRowTile],
                                                int64_t i) {
  constexpr int kNext = (kSlot + 1) % kAhead;
  const int64_t block = F.halves ? i / 2 : i;
  const float *d = in.d + block * kRowTile, *s = in.s + block * kRowTile;
  const auto* products = reinterpret_cast<const float*>(sums[kSlot].bytes);
  const __m512 scale = _mm512_load_ps(in.w.scale[i]);
  __m512 minimum = _mm512_setzero_ps();
  if constexpr (F.minimum) minimum = _mm512_load_ps(in.w.minimum[i]);
#pragma GCC unroll 16
  for (int m = 0; m < kRowTile; m++) {
    if (m == kRowTile / 2 && i + 1 < in.products)
      tiles.template store<kNext>(sums[kNext].bytes, kTileRowBytes);
    acc[m] = _mm512_fmadd_ps(_mm512_mul_ps(scale, _mm512_set1_ps(d[m])),
                             _mm512_load_ps(products + m * kPanelRows), acc[m]);
    if constexpr (F.minimum) acc[m] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(s[m]), acc[m]);
  }
}

// Adds a chunk to the sums of a row tile. acc must stay in registers: every loop over it is
// unrolled, and everything that takes it is inlined.
template <QuantForm F, class Tiles>
void add_chunk(Tiles& tiles, Operands in, StripSums& sums) {
  TileBytes products[kAhead];
  __m512 acc[kRowTile];
  int left = sums.left;
#pragma GCC unroll 16
  for (int m = 0; m < kRowTile; m++) acc[m] = sums.acc[m];
  const auto step = [&](auto slot, int64_t i) __attribute__((always_inline)) {
    if (i >= in.products) return;
    if (left == 0) {
      sums.units.push(acc);
#pragma GCC unroll 16
      for (int m = 0; m < kRowTile; m++) acc[m] = _mm512_setzero_ps();
      left = in.unit_products;
    }
    left--;
    begin_product<F>(tiles, in, slot, i + kAhead);
    if (in.next)
      for (int64_t at = 0; at < in.next_bytes; at += 64)
        _mm_prefetch(in.next + i * in.next_bytes + at, _MM_HINT_T1);
    fold<F>(tiles, in, slot, products, acc, i);
  };
  begin_product<F>(tiles, in, Slot<0>(), 0);
  begin_product<F>(tiles, in, Slot<1>(), 1);
  begin_product<F>(tiles, in, Slot<2>(), 2);
  begin_product<F>(tiles, in, Slot<3>(), 3);
  tiles.template store<0>(products[0].bytes, kTileRowBytes);
  for (int64_t i = 0; i < in.products; i += kAhead) {
    step(Slot<0>(), i);
    step(Slot<1>(), i + 1);
    step(Slot<2>(), i + 2);
    step(Slot<3>(), i + 3);
  }
#pragma GCC unroll 16
  for (int m = 0; m < kRowTile; m++) sums.acc[m] = acc[m];
  sums.left = left;
}

// The end of the last unit, and `rows` rows of y.
[[maybe_unused]] static void finish_rows(StripSums& sums, bool several_units, int64_t rows,
                                         float* y, int64_t stride, __mmask16 lanes) {
  __m512 acc[kRowTile];
#pragma GCC unroll 16
  for (int m = 0; m < kRowTile; m++) acc[m] = sums.acc[m];
  if (several_units) {
    sums.units.push(acc);
    sums.units.finish(acc);
  }
#pragma GCC unroll 16
  for (int m = 0; m < kRowTile; m++)
    if (m < rows) _mm512_mask_storeu_ps(y + m * stride, lanes, acc[m]);
}

// One panel by row tiles [t0, t0 + tiles).
template <QuantForm F, class Tiles>
void multiply_strip(Tiles& tiles, const MatmulJob& job, int64_t p, int64_t t0, int64_t count) {
  constexpr int kHalves = F.halves ? 2 : 1;
  const PanelShape shape = panel_shape(F, job.columns);
  const int64_t first = job.begin / kQuantBlock, blocks = job.end / kQuantBlock - first;
  const int64_t chunks = (blocks + kChunkBlocks - 1) / kChunkBlocks;
  const int unit_products = int(job.unit_columns / kQuantBlock * kHalves);
  const std::byte* panel = job.packed + p * job.panel_bytes;
  TileScratch& scratch = *reinterpret_cast<TileScratch*>(job.scratch);
  for (int64_t t = 0; t < count; t++) {
    for (__m512& a : scratch.sums[t].acc) a = _mm512_setzero_ps();
    scratch.sums[t].units.clear();
    scratch.sums[t].left = unit_products;
  }
  for (int64_t c = 0; c < chunks; c++) {
    const int64_t b0 = first + blocks * c / chunks, b1 = first + blocks * (c + 1) / chunks;
    unpack<F>(panel, shape, b0, b1, scratch.chunk);
    for (int64_t t = 0; t < count; t++) {
      const RowTile x = row_tile(job.q, t0 + t);
      const Operands in{scratch.chunk,
                        x.tiled + b0 * kRowTile * kQuantBlock,
                        x.d + b0 * kRowTile,
                        x.s + b0 * kRowTile,
                        int(b1 - b0) * kHalves,
                        unit_products,
                        t == 0 ? panel + shape.quants_at + b1 * shape.quant_bytes : nullptr,
                        shape.bytes / shape.blocks / kHalves};
      add_chunk<F>(tiles, in, scratch.sums[t]);
    }
  }
  const int64_t lanes = job.n - p * kPanelRows;
  for (int64_t t = 0; t < count; t++) {
    const int64_t row = (t0 + t) * kRowTile;
    finish_rows(scratch.sums[t], job.end - job.begin > job.unit_columns, job.rows - row,
                job.y + row * job.stride + p * kPanelRows, job.stride,
                __mmask16(lanes < kPanelRows ? (1u << lanes) - 1 : 0xffffu));
  }
}

template <QuantForm F, class Tiles>
void multiply_panels(const MatmulJob& job, int64_t p0, int64_t p1) {
  Tiles tiles;
  const int64_t row_tiles = (job.rows + kRowTile - 1) / kRowTile;
  tiles.configure(kTileRows, F.halves ? 8 : 16);
  for (int64_t t = 0; t < row_tiles; t += kStripTiles) {
    const int64_t rest = row_tiles - t, count = rest < kStripTiles ? rest : kStripTiles;
    for (int64_t p = p0; p < p1; p++) multiply_strip<F>(tiles, job, p, t, count);
  }
  tiles.release();
}

// MatmulPanels. Few rows, and what is not quantised, are left to vectors, whose bits are the same.
template <class Tiles>
void multiply_on_tiles(const MatmulJob& job, int64_t p0, int64_t p1) {
  const bool tiled = job.quantized && job.int8 && job.q.tiled;
  if (!tiled || job.rows < kFewestTiledRows) return matmul_avx512(job, p0, p1);
  for_form(job.type, [&](auto f) { multiply_panels<f.form, Tiles>(job, p0, p1); });
}

}  // namespace
}  // namespace cohort
