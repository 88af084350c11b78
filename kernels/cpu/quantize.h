// SPDX-License-Identifier: Apache-2.0
// int8 activations (docs/arithmetic.md section 1) and how they lie in Activations::storage(): tiles
// of up to 16 rows, integers [block][row][32], scales and sums [block][16] per tile. Included by
// units of every instruction set: plain structs and static functions only.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cohort {

constexpr int kRowTile = 16;
constexpr int kFewestTiledRows = 32;  // from which products on AMX tiles are the faster ones

struct RowTile {
  const int8_t* q;        // [block][stored rows][32]
  int64_t block_bytes;    // 32 * stored rows
  const float* d;         // [block][16] scale
  const float* s;         // [block][16] scale * sum of q, rounded once
  const int32_t* sum;     // [block][16] sum of q
  const uint16_t* tiled;  // [block][16][32] q in bf16
};

struct QuantizedRows {
  int8_t* q;
  float *d, *s;
  int32_t* sum;
  int64_t blocks;             // of a row
  int stored;                 // rows of a tile in memory
  uint16_t* tiled = nullptr;  // q for AMX tiles (TileRow); null where rows do not begin a row tile
};

[[maybe_unused]] static RowTile row_tile(const QuantizedRows& x, int64_t tile) {
  const int64_t slots = tile * kRowTile * x.blocks;
  return {x.q + slots * 32, int64_t(x.stored) * 32, x.d + slots,
          x.s + slots,      x.sum + slots,          x.tiled ? x.tiled + slots * 32 : nullptr};
}

// With room for AMX tiles, which is never touched where there are none.
[[maybe_unused]] static int64_t quantized_bytes(int64_t rows, int64_t columns) {
  const int64_t tiled = rows < kFewestTiledRows ? 0 : 32 * 2;
  return (rows + kRowTile - 1) / kRowTile * kRowTile * (columns / 32) * (32 + 3 * 4 + tiled);
}

[[maybe_unused]] static QuantizedRows quantized_rows(std::byte* storage, int64_t rows,
                                                     int64_t columns) {
  const int64_t blocks = columns / 32;
  const int64_t slots = (rows + kRowTile - 1) / kRowTile * kRowTile * blocks;
  QuantizedRows out;
  out.q = reinterpret_cast<int8_t*>(storage);
  out.d = reinterpret_cast<float*>(storage + slots * 32);
  out.s = out.d + slots;
  out.sum = reinterpret_cast<int32_t*>(out.s + slots);
  out.blocks = blocks;
  out.stored = rows < kRowTile ? int(rows) : kRowTile;
  if (rows >= kFewestTiledRows) out.tiled = reinterpret_cast<uint16_t*>(out.sum + slots);
  return out;
}

// Where blocks of one row go: of block b the integers at q + b * block_bytes, the scale and the
// sums at [b * kRowTile].
struct QuantizedBlocks {
  int8_t* q;
  int64_t block_bytes;
  float *d, *s;
  int32_t* sum;
};

// The blocks of a row from `block` on.
[[maybe_unused]] static QuantizedBlocks quantized_blocks(const QuantizedRows& x, int64_t row,
                                                         int64_t block) {
  const int64_t tile = row / kRowTile * kRowTile * x.blocks, r = row % kRowTile;
  const int64_t block_bytes = int64_t(x.stored) * 32, slot = tile + block * kRowTile + r;
  return {x.q + tile * 32 + block * block_bytes + r * 32, block_bytes, x.d + slot, x.s + slot,
          x.sum + slot};
}

// x: `blocks` blocks of 32.
using Quantize = void(const float* x, int64_t blocks, const QuantizedBlocks& out);
Quantize quantize_portable, quantize_avx2, quantize_avx512;

// `blocks` blocks of a row for AMX tiles, at their places in `tiled`: of every four columns the
// middle ones change places (kernels/cpu/matmul_amx.h says why).
using TileRow = void(const int8_t* q, int64_t blocks, int64_t block_bytes, uint16_t* tiled);
TileRow tile_row_amx;

}  // namespace cohort
