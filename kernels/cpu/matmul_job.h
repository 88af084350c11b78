// SPDX-License-Identifier: Apache-2.0
// What a matmul kernel is given: a range of panels of one part, all rows of x, one piece. Plain
// structs, because units of every instruction set include this.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/cpu/bf16_rows.h"
#include "kernels/cpu/quantize.h"

namespace cohort {

constexpr int64_t kTileScratchBytes = 512 << 10;

struct MatmulJob {
  DType type;
  bool quantized;           // whether type is
  const std::byte* packed;  // of the part
  int64_t panel_bytes;
  int64_t n;        // rows of the part, outputs
  int64_t columns;  // of the whole matrix
  int64_t unit_columns;
  int64_t begin, end;  // columns of the piece, whole units
  int64_t rows;        // of x
  const float* x;      // [rows, columns]
  QuantizedRows q;     // the same rows, if int8 is wanted and the type is quantised
  bool int8;
  float* y;  // [rows, stride], at the part's first column
  int64_t stride;
  float* scratch;   // [columns][16] for ActivationMode::f32; else kTileScratchBytes for AMX
  Bf16Rows bf16;    // the same rows, for bf16 weights in ActivationMode::bf16
  bool bf16_tiles;  // whether AMX tiles may do those (kernels/cpu/amx_check.h)
};

// Panels [p0, p1) of the part.
using MatmulPanels = void(const MatmulJob&, int64_t p0, int64_t p1);
MatmulPanels matmul_portable, matmul_avx2, matmul_avx512, matmul_amx;

// bf16 weights times job.bf16 (docs/arithmetic.md section 9).
MatmulPanels matmul_bf16_portable, matmul_bf16_avx2, matmul_bf16_avx512, matmul_bf16_amx;

}  // namespace cohort
