// SPDX-License-Identifier: Apache-2.0
// f16 or bf16 activations times one matrix of quantised weights (quant_tile.h).
#include "kernels/cuda/portable.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/quant_tile.h"

namespace cohort::cuda {
namespace {

// Grid (panels, units).
template <class T, class Kind, int N>
__global__ void __launch_bounds__(32 * kSlices) few_kernel(QuantProduct p) {
  GPU_SHARED(float, slices, [kSlices][2 * N * 4 * 32]);
  few_tile<T, Kind, N>(p, blockIdx.x, blockIdx.y, slices);
}

// Grid (panels / 4, tokens / 64, units).
template <class T, class Kind>
__global__ void __launch_bounds__(256, 2) many_kernel(QuantProduct p) {
  GPU_SHARED(ManyMemory, memory, [1]);
  many_tile<T, Kind>(p, std::int64_t{blockIdx.x} * kTilePanels,
                     std::int64_t{blockIdx.y} * kTileTokens, blockIdx.z, memory[0]);
}

dim3 grid(std::int64_t x, std::int64_t y, std::int64_t z) {
  return dim3(static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z));
}

template <class T>
cudaError_t launch_few(const QuantProduct& p, cudaStream_t stream) {
  return with_kind(p.w, [&](auto kind) {
    using Kind = decltype(kind);
    const dim3 blocks = grid((p.n + kQuantPanel - 1) / kQuantPanel, p.units, 1);
    if (p.rows <= 8) return gpu::launch(few_kernel<T, Kind, 1>, blocks, dim3(256), 0, stream, p);
    return gpu::launch(few_kernel<T, Kind, 2>, blocks, dim3(256), 0, stream, p);
  });
}

template <class T>
cudaError_t launch_many(const QuantProduct& p, cudaStream_t stream) {
  return with_kind(p.w, [&](auto kind) {
    const std::int64_t rows = kTilePanels * kQuantPanel;
    return gpu::launch(
        many_kernel<T, decltype(kind)>,
        grid((p.n + rows - 1) / rows, (p.rows + kTileTokens - 1) / kTileTokens, p.units), dim3(256),
        0, stream, p);
  });
}

}  // namespace

cudaError_t quant_few(const QuantProduct& p, cudaStream_t stream) {
  return p.in == DType::f16 ? launch_few<__half>(p, stream) : launch_few<__nv_bfloat16>(p, stream);
}

cudaError_t quant_many(const QuantProduct& p, cudaStream_t stream) {
  return p.in == DType::f16 ? launch_many<__half>(p, stream)
                            : launch_many<__nv_bfloat16>(p, stream);
}

}  // namespace cohort::cuda
