// SPDX-License-Identifier: Apache-2.0
// Products with one quantised part: what ops::cuda::matmul asks of the kernels. A plain header.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/cuda/quant_view.h"

namespace cohort::cuda {

// y [units][rows][n] = x [rows, columns] * w^T, unit u over columns [u unit_columns, ..).
struct QuantProduct {
  QuantView w;
  const void* x;  // [rows][columns] of `in`
  void* y;        // of `out`: f32 or `in`
  DType in, out;
  std::int64_t n, rows, columns, unit_columns;
  std::int64_t units;
  std::int64_t y_stride, y_unit;  // between rows and between units, in elements
};

// Rows in int8 (docs/arithmetic.md section 1): q [rows][columns], d and s [columns / 32][stride],
// stride being the rows of all of them.
struct Int8Rows {
  std::int8_t* q;
  float *d, *s;
  std::int64_t stride;
};
inline Int8Rows int8_rows(std::byte* storage, std::int64_t rows, std::int64_t columns) {
  float* scales = reinterpret_cast<float*>(storage + rows * columns);
  return {reinterpret_cast<std::int8_t*>(storage), scales, scales + rows * (columns / 32), rows};
}

// f16 or bf16 activations. At most kFewRows rows: bound by reading weights; more: by arithmetic.
// Both add in the same order.
constexpr std::int64_t kFewRows = 16;
cudaError_t quant_few(const QuantProduct& p, cudaStream_t stream);
cudaError_t quant_many(const QuantProduct& p, cudaStream_t stream);
// out [n][columns] of `type` = the weights, rounded once.
cudaError_t dequantize(const QuantView& w, DType type, std::int64_t n, void* out,
                       cudaStream_t stream);

// Bit for bit the CPU's arithmetic: int8 activations, and everything in f32. x of any type.
cudaError_t quantize_rows(const void* x, DType type, std::int64_t rows, std::int64_t columns,
                          const Int8Rows& out, cudaStream_t stream);
cudaError_t int8_product(const QuantProduct& p, const Int8Rows& x, cudaStream_t stream);
cudaError_t exact_product(const QuantProduct& p, cudaStream_t stream);

}  // namespace cohort::cuda
