// SPDX-License-Identifier: Apache-2.0
// Quantised weights in device memory. They are operand A of mma (16 rows of weights by 16 or 32
// columns), tokens are operand B. A plain header, for hosts and kernels; quant_layout.h reads it.
//
//   matrix = panel 0 | panel 1 | ..     32 output rows each; missing rows have scales of zero
//   panel  = record 0 | record 1 | ..   32 columns each: one stream for the warp that reads it
//   record = quants | scales
//
// A panel is two tiles of 16 rows. Lane 4 g + c of a warp holds rows g and g + 8 of both tiles, of
// columns 4 c .. 4 c + 3 (step 0) and 16 + 4 c .. (step 1), in 16-byte words:
//   nibbles  one word    [tile][step][4 bytes]: low nibble row g, high nibble row g + 8
//   int8     two words   [tile] lane 0, lane 1, ..: [step][row g, row g + 8][4 bytes]
// The int8 word is operand A of m16n8k32 as it stands. For m16n8k16 step s is one product whose
// columns are dealt differently, which changes nothing as long as B is dealt alike: a lane's four
// columns of B are the same four, 8 contiguous bytes of a row of activations.
//
// Scales are [g][row g, g + 8 of tile 0, then of tile 1][what the form has: scale, second scale (of
// columns 16 ..), minimum], in f16 or f32 (kernels/packed.h, QuantForm).
#pragma once
#include <cstdint>

#include "base/dtype.h"

namespace cohort::cuda {

constexpr int kQuantPanel = 32;  // rows

// One part's weights, as kernels see them.
struct QuantView {
  const unsigned char* data;
  std::int64_t blocks;        // records of a panel: columns / 32
  std::int32_t quant_bytes;   // of a record
  std::int32_t record_bytes;  // with scales
  std::int32_t values;        // scales and minima of one row of a record: 1 or 2
  std::int32_t offset;        // subtracted from a nibble
  bool nibbles, halves, wide, minimum;
};

// Only for quantised types.
QuantView quant_view(DType type, std::int64_t columns, const void* data);
std::int64_t quant_bytes(DType type, std::int64_t rows, std::int64_t columns);

}  // namespace cohort::cuda
