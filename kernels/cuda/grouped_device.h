// SPDX-License-Identifier: Apache-2.0
// What kernels of groups of matrices share.
#pragma once
#include "kernels/cuda/grouped_product.h"
#include "kernels/cuda/portable.h"

namespace cohort::cuda {

// Threads of a block of all kernels for few rows.
constexpr int kGroupThreads = 256;

// The matrix of a block: the blockIdx.y-th that has rows, -1 where fewer have; where every matrix
// has blocks, simply number blockIdx.y. All threads of the block take part, and get the same.
GPU_FN int group_of_block(const GroupedProduct& g) {
  if (g.most_used == g.groups) return static_cast<int>(blockIdx.y);
  GPU_SHARED(std::uint32_t, votes, [kGroupThreads / 32]);
  GPU_SHARED(int, found, [1]);
  const int thread = threadIdx.x, warp = thread / 32;
  int before = 0;  // that have rows, of those looked at
  if (thread == 0) found[0] = -1;
  for (int base = 0; base < g.groups; base += kGroupThreads) {
    const int group = base + thread;
    const bool has = group < g.groups && g.offsets[group + 1] > g.offsets[group];
    const std::uint32_t vote = __ballot_sync(0xffffffffu, has);
    if (thread % 32 == 0) votes[warp] = vote;
    __syncthreads();
    int rank = before + __popc(vote & ((1u << thread % 32) - 1u));
#pragma unroll
    for (int w = 0; w < kGroupThreads / 32; w++) {
      if (w < warp) rank += __popc(votes[w]);
      before += __popc(votes[w]);
    }
    if (has && rank == static_cast<int>(blockIdx.y)) found[0] = group;
    __syncthreads();
  }
  return found[0];
}

// Of `rows` rows of one matrix. T: of x (which int8 kernels do not read) and y.
template <class T>
GPU_FN QuantProduct product_of(const GroupedProduct& g, int group, std::int64_t first,
                               std::int64_t rows) {
  QuantProduct p{};
  p.w = g.w;
  p.w.data = g.weights[group];
  p.x = static_cast<const T*>(g.x) + first * g.columns;
  p.y = static_cast<T*>(g.y) + first * g.y_stride;
  p.out = sizeof(T) == 4 ? DType::f32 : DType::f16;  // f32, or T
  p.n = g.n;
  p.rows = rows;
  p.columns = p.unit_columns = g.columns;
  p.y_stride = g.y_stride;
  return p;
}

}  // namespace cohort::cuda
