// SPDX-License-Identifier: Apache-2.0
// Products of a group of matrices: what ops::cuda::grouped_matmul asks of the kernels. A plain
// header.
//
// A kernel for few rows has blocks for each matrix that has rows, which take all of those, a few at
// a time; so does the one without tensor cores. Where there are fewer rows than matrices, a block
// looks for its matrix: thousands of blocks that end at once would take longer. A kernel for many
// rows has blocks for as many tiles of x's rows as there could be, and a list that was made on the
// device says whose they are; blocks without a tile end at once. All of them add in the same order.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/dtype.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/quant_view.h"

namespace cohort::cuda {

// One part (the same rows) of every matrix. y [offsets[g] ..][n] = x [offsets[g] ..][columns] *
// w_g^T.
struct GroupedProduct {
  QuantView w;                          // of quantised weights; data is not used
  const unsigned char* const* weights;  // of each matrix, in device memory
  const std::int32_t* offsets;          // [groups + 1], in device memory
  const void* x;                        // [rows][columns] of `in`
  void* y;                              // of `in`; y_stride elements between rows
  DType in;
  std::int64_t n, columns, y_stride;
  std::int32_t groups, most_used;  // matrices, and how many of them can have rows at most
};

// Rows [first, first + count) of x belong to `group`; none: count is 0.
struct alignas(16) RowTile {
  std::int32_t group, first, count, padding;
};
constexpr std::int32_t kTileRows = 64;
// No more tiles than that, however the rows are shared out.
inline std::int64_t most_tiles(std::int64_t rows, std::int64_t groups) {
  return (rows < groups ? rows : groups) + rows / kTileRows;
}
// Lists the tiles of all groups, and `most` in all.
cudaError_t list_tiles(const std::int32_t* offsets, std::int32_t groups, RowTile* tiles,
                       std::int64_t most, cudaStream_t stream);

// Weights of the type of the activations, f16 or bf16. tokens: rows that a block takes at once, 8
// or 16. Any columns.
cudaError_t grouped_plain_few(const GroupedProduct& p, int tokens, cudaStream_t stream);
// x, weights and columns must be multiples of 16 bytes.
cudaError_t grouped_plain_many(const GroupedProduct& p, const RowTile* tiles, std::int64_t most,
                               cudaStream_t stream);

// f16 or bf16 activations times quantised weights.
cudaError_t grouped_quant_few(const GroupedProduct& p, int tokens, cudaStream_t stream);
cudaError_t grouped_quant_many(const GroupedProduct& p, const RowTile* tiles, std::int64_t most,
                               cudaStream_t stream);

// int8 activations times quantised weights; x: all rows. y is of `in`.
cudaError_t grouped_int8_few(const GroupedProduct& p, const Int8Rows& x, cudaStream_t stream);
cudaError_t grouped_int8_many(const GroupedProduct& p, const Int8Rows& x, const RowTile* tiles,
                              std::int64_t most, cudaStream_t stream);

// In f32, without tensor cores: plain weights are f32, quantised ones become f32 as they are used.
cudaError_t grouped_exact(const GroupedProduct& p, bool quantised, cudaStream_t stream);

}  // namespace cohort::cuda
