// SPDX-License-Identifier: Apache-2.0
// f16 or bf16 activations times a group of matrices of quantised weights: the tiles of
// quant_tile.h, each with a matrix of its own.
#include "kernels/cuda/grouped_device.h"
#include "kernels/cuda/portable.h"
#include "kernels/cuda/quant_tile.h"

namespace cohort::cuda {
namespace {

// Grid (panels, matrices that can have rows).
template <class T, class Kind, int N>
__global__ void __launch_bounds__(kGroupThreads) grouped_quant_few_kernel(GroupedProduct g) {
  GPU_SHARED(float, slices, [kSlices][2 * N * 4 * 32]);
  const int group = group_of_block(g);
  if (group < 0) return;
  const int begin = g.offsets[group], end = g.offsets[group + 1];
#pragma unroll 1
  for (int first = begin; first < end; first += 8 * N) {
    if (first > begin) __syncthreads();  // slices of the last rows are read
    const int rows = end - first < 8 * N ? end - first : 8 * N;
    few_tile<T, Kind, N>(product_of<T>(g, group, first, rows), blockIdx.x, 0, slices);
  }
}

// Grid (panels / 4, tiles).
template <class T, class Kind>
__global__ void __launch_bounds__(256, 2)
    grouped_quant_many_kernel(GroupedProduct g, const RowTile* tiles) {
  GPU_SHARED(ManyMemory, memory, [1]);
  const auto tile = gpu::load16<RowTile>(tiles + blockIdx.y);
  if (tile.count == 0) return;
  many_tile<T, Kind>(product_of<T>(g, tile.group, tile.first, tile.count),
                     std::int64_t{blockIdx.x} * kTilePanels, 0, 0, memory[0]);
}

template <class T>
cudaError_t launch_few(const GroupedProduct& p, int tokens, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((p.n + kQuantPanel - 1) / kQuantPanel),
                  static_cast<unsigned>(p.most_used));
  return with_kind(p.w, [&](auto kind) {
    using Kind = decltype(kind);
    return gpu::launch(
        tokens == 8 ? grouped_quant_few_kernel<T, Kind, 1> : grouped_quant_few_kernel<T, Kind, 2>,
        grid, dim3(kGroupThreads), 0, stream, p);
  });
}

template <class T>
cudaError_t launch_many(const GroupedProduct& p, const RowTile* tiles, std::int64_t most,
                        cudaStream_t stream) {
  static_assert(kTileRows == kTileTokens);
  const std::int64_t rows = kTilePanels * kQuantPanel;
  const dim3 grid(static_cast<unsigned>((p.n + rows - 1) / rows), static_cast<unsigned>(most));
  return with_kind(p.w, [&](auto kind) {
    return gpu::launch(grouped_quant_many_kernel<T, decltype(kind)>, grid, dim3(256), 0, stream, p,
                       tiles);
  });
}

}  // namespace

cudaError_t grouped_quant_few(const GroupedProduct& p, int tokens, cudaStream_t stream) {
  return p.in == DType::f16 ? launch_few<__half>(p, tokens, stream)
                            : launch_few<__nv_bfloat16>(p, tokens, stream);
}

cudaError_t grouped_quant_many(const GroupedProduct& p, const RowTile* tiles, std::int64_t most,
                               cudaStream_t stream) {
  return p.in == DType::f16 ? launch_many<__half>(p, tiles, most, stream)
                            : launch_many<__nv_bfloat16>(p, tiles, most, stream);
}

}  // namespace cohort::cuda
