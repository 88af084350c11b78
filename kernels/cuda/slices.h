// SPDX-License-Identifier: Apache-2.0
// The order of additions of products on tensor cores, whatever the rows and the kernel: the columns
// of a unit, 32 at a time (a record), are dealt to 8 slices in order; within a slice there is one
// chain over records; then the slices are added, first to last. For few rows a slice is a warp; for
// many rows one warp does them all.
#pragma once
#include "kernels/cuda/portable.h"
#include "kernels/cuda/quant_mma.h"

namespace cohort::cuda {

constexpr int kSlices = 8;

// First record of slice s of a unit of so many records.
GPU_FN int slice_begin(int records, int s) { return records * s / kSlices; }

GPU_FN std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

// Adds the slices that the 8 warps of a block have of 32 rows by 8 N tokens, in order. slices:
// shared by the block. Calls put(token, row, sum) for every element, each on one thread.
template <int N, class Put>
GPU_FN void put_slices(const QuantSums<N>& sums, float (&slices)[kSlices][2 * N * 4 * 32],
                       const Put& put) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int tile = 0; tile < 2; tile++)
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
      for (int j = 0; j < 4; j++)
        slices[warp][((tile * N + i) * 4 + j) * 32 + lane] = sums[tile][i][j];
  __syncthreads();
#pragma unroll
  for (int e = 0; e < N; e++) {
    const int at = e * 256 + static_cast<int>(threadIdx.x), j = at / 32 % 4;
    float total = slices[0][at];
#pragma unroll
    for (int s = 1; s < kSlices; s++) total = __fadd_rn(total, slices[s][at]);
    put(result_token(lane, at / 128 % N, j), result_row(lane, at / 128 / N, j), total);
  }
}

}  // namespace cohort::cuda
