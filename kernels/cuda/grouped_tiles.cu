// SPDX-License-Identifier: Apache-2.0
// Which rows are a tile, and whose: written once per product, so that thousands of blocks need not
// search the offsets.
#include "kernels/cuda/grouped_product.h"
#include "kernels/cuda/portable.h"

namespace cohort::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

// The sum of the values of all threads before this one; total: of all.
GPU_FN int sum_before(int value, int& total) {
  GPU_SHARED(int, sums, [kWarps]);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int up_to = value;
#pragma unroll
  for (int apart = 1; apart < 32; apart *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, up_to, static_cast<unsigned>(apart));
    if (lane >= apart) up_to += other;
  }
  __syncthreads();  // of the last call
  if (lane == 31) sums[warp] = up_to;
  __syncthreads();
  int before = up_to - value;
  total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; w++) {
    if (w < warp) before += sums[w];
    total += sums[w];
  }
  return before;
}

// One block.
__global__ void __launch_bounds__(kThreads)
    list_tiles_kernel(const std::int32_t* offsets, int groups, RowTile* tiles, int most) {
  int done = 0;
  for (int base = 0; base < groups; base += kThreads) {
    const int group = base + static_cast<int>(threadIdx.x);
    const int begin = group < groups ? offsets[group] : 0;
    const int end = group < groups ? offsets[group + 1] : 0;
    int total = 0;
    int to = done + sum_before((end - begin + kTileRows - 1) / kTileRows, total);
    for (int first = begin; first < end && to < most; first += kTileRows, to++) {
      const int left = end - first;
      gpu::store16(tiles + to, RowTile{group, first, left < kTileRows ? left : kTileRows, 0});
    }
    done += total;
  }
  for (int i = done + static_cast<int>(threadIdx.x); i < most; i += kThreads)
    gpu::store16(tiles + i, RowTile{0, 0, 0, 0});
}

}  // namespace

cudaError_t list_tiles(const std::int32_t* offsets, std::int32_t groups, RowTile* tiles,
                       std::int64_t most, cudaStream_t stream) {
  return gpu::launch(list_tiles_kernel, dim3(1), dim3(kThreads), 0, stream, offsets, groups, tiles,
                     static_cast<int>(most));
}

}  // namespace cohort::cuda
