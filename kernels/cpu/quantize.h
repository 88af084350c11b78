// SPDX-License-Identifier: Apache-2.0
// int8 activations (docs/arithmetic.md section 1) and how they lie in Activations::storage(): tiles
// of up to 16 rows, integers [block][row][32], scales and sums [block][16] per tile. Included by
// units of every instruction set: plain structs and static functions only.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cohort {

constexpr int kRowTile = 16;

struct RowTile {
  const int8_t* q;      // [block][stored rows][32]
  int64_t block_bytes;  // 32 * stored rows
  const float* d;       // [block][16] scale
  const float* s;       // [block][16] scale * sum of q, rounded once
  const int32_t* sum;   // [block][16] sum of q
};

struct QuantizedRows {
  int8_t* q;
  float *d, *s;
  int32_t* sum;
  int64_t blocks;  // of a row
  int stored;      // rows of a tile in memory
};

[[maybe_unused]] static RowTile row_tile(const QuantizedRows& x, int64_t tile) {
  const int64_t slots = tile * kRowTile * x.blocks;
  return {x.q + slots * 32, int64_t(x.stored) * 32, x.d + slots, x.s + slots, x.sum + slots};
}

[[maybe_unused]] static int64_t quantized_bytes(int64_t rows, int64_t columns) {
  return (rows + kRowTile - 1) / kRowTile * kRowTile * (columns / 32) * (32 + 3 * 4);
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
  return out;
}

// One block of 32.
using QuantizeBlock = void(const float* x, int8_t* q, float* d, int32_t* sum);
QuantizeBlock quantize_portable, quantize_avx2, quantize_avx512;

}  // namespace cohort
