// SPDX-License-Identifier: Apache-2.0
// Activations of bf16 weights in ActivationMode::bf16 (docs/arithmetic.md section 9) and how they
// lie in Activations::storage(), after the int8 ones. Included by units of every instruction set:
// plain structs and static functions only.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/quantize.h"

namespace cohort {

// Rounded to bf16, denormals being zeros of their sign. Both forms hold the same values; what lies
// between a row's last column and the next row is not defined.
struct Bf16Rows {
  float* wide;       // [rows][stride], as f32; null where bf16 is not wanted
  uint16_t* narrow;  // [rows][stride], as bf16
  int64_t stride;    // elements
};

// An odd number of cache lines of bf16: the rows of a tile do not meet in the same sets of a cache,
// and 32 columns do not straddle two lines.
[[maybe_unused]] static int64_t bf16_stride(int64_t columns) {
  return ((columns + 31) / 32 | 1) * 32;
}

[[maybe_unused]] static int64_t bf16_rows_at(int64_t rows, int64_t columns) {
  return (quantized_bytes(rows, columns) + 63) / 64 * 64;
}

// Of the int8 rows and these. AMX loads 16 narrow rows at a time, whether they exist or not.
[[maybe_unused]] static int64_t bf16_bytes(int64_t rows, int64_t columns) {
  const int64_t narrow_rows = rows + kRowTile - 1;
  return bf16_rows_at(rows, columns) + (rows * 4 + narrow_rows * 2) * bf16_stride(columns);
}

[[maybe_unused]] static Bf16Rows bf16_rows(std::byte* storage, int64_t rows, int64_t columns) {
  const int64_t stride = bf16_stride(columns);
  std::byte* wide = storage + bf16_rows_at(rows, columns);
  return {reinterpret_cast<float*>(wide), reinterpret_cast<uint16_t*>(wide + rows * stride * 4),
          stride};
}

// The rows from `row` on.
[[maybe_unused]] static Bf16Rows rows_from(const Bf16Rows& x, int64_t row) {
  return {x.wide + row * x.stride, x.narrow + row * x.stride, x.stride};
}

// n columns of a row.
using RoundBf16 = void(const float* x, int64_t n, float* wide, uint16_t* narrow);
RoundBf16 round_bf16_portable, round_bf16_avx2, round_bf16_avx512;

}  // namespace cohort
