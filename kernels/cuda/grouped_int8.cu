// SPDX-License-Identifier: Apache-2.0
// int8 activations times a group of matrices of quantised weights: the tiles of int8_tile.h, each
// with a matrix of its own. The bits are the CPU's.
#include "kernels/cuda/grouped_device.h"
#include "kernels/cuda/int8_tile.h"
#include "kernels/cuda/portable.h"

namespace cohort::cuda {
namespace {

GPU_FN Int8Rows rows_from(const GroupedProduct& g, const Int8Rows& x, std::int64_t first) {
  return {x.q + first * g.columns, x.d + first, x.s + first, x.stride};
}

// Grid (panels, matrices that can have rows). T: of y.
template <class T, class Kind>
__global__ void __launch_bounds__(kGroupThreads)
    grouped_int8_few_kernel(GroupedProduct g, Int8Rows x) {
  GPU_SHARED(float2, terms, [kRound][kTerms<Kind>][256]);
  const int group = group_of_block(g);
  if (group < 0) return;
  const int begin = g.offsets[group], rows = g.offsets[group + 1] - begin;
  if (rows == 0) return;
  const QuantProduct p = product_of<T>(g, group, begin, rows);
#pragma unroll 1
  for (int first = 0; first < rows; first += 8)
    int8_few_tile<T, Kind>(p, rows_from(g, x, begin), blockIdx.x, first, 0, terms);
}

// Grid (panels / 4, tiles).
template <class T, class Kind>
__global__ void __launch_bounds__(32 * kInt8Panels)
    grouped_int8_many_kernel(GroupedProduct g, Int8Rows x, const RowTile* tiles) {
  const auto tile = gpu::load16<RowTile>(tiles + blockIdx.y);
  if (tile.count == 0) return;
  const QuantProduct p = product_of<T>(g, tile.group, tile.first, tile.count);
#pragma unroll 1
  for (int first = 0; first < tile.count; first += 8 * kInt8Tiles)
    int8_many_tile<T, Kind, kInt8Tiles>(p, rows_from(g, x, tile.first),
                                        std::int64_t{blockIdx.x} * kInt8Panels + threadIdx.x / 32,
                                        first, 0);
}

template <class T>
cudaError_t launch_few(const GroupedProduct& p, const Int8Rows& x, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((p.n + kQuantPanel - 1) / kQuantPanel),
                  static_cast<unsigned>(p.most_used));
  return with_kind(p.w, [&](auto kind) {
    return gpu::launch(grouped_int8_few_kernel<T, decltype(kind)>, grid, dim3(kGroupThreads), 0,
                       stream, p, x);
  });
}

template <class T>
cudaError_t launch_many(const GroupedProduct& p, const Int8Rows& x, const RowTile* tiles,
                        std::int64_t most, cudaStream_t stream) {
  const std::int64_t rows = kInt8Panels * kQuantPanel;
  const dim3 grid(static_cast<unsigned>((p.n + rows - 1) / rows), static_cast<unsigned>(most));
  return with_kind(p.w, [&](auto kind) {
    return gpu::launch(grouped_int8_many_kernel<T, decltype(kind)>, grid, dim3(32 * kInt8Panels), 0,
                       stream, p, x, tiles);
  });
}

}  // namespace

cudaError_t grouped_int8_few(const GroupedProduct& p, const Int8Rows& x, cudaStream_t stream) {
  if (p.in == DType::f16) return launch_few<__half>(p, x, stream);
  if (p.in == DType::bf16) return launch_few<__nv_bfloat16>(p, x, stream);
  return launch_few<float>(p, x, stream);
}

cudaError_t grouped_int8_many(const GroupedProduct& p, const Int8Rows& x, const RowTile* tiles,
                              std::int64_t most, cudaStream_t stream) {
  if (p.in == DType::f16) return launch_many<__half>(p, x, tiles, most, stream);
  if (p.in == DType::bf16) return launch_many<__nv_bfloat16>(p, x, tiles, most, stream);
  return launch_many<float>(p, x, tiles, most, stream);
}

}  // namespace cohort::cuda
