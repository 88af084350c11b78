// SPDX-License-Identifier: Apache-2.0
// int8 activations times one matrix of quantised weights (int8_tile.h).
#include "kernels/cuda/int8_tile.h"
#include "kernels/cuda/portable.h"
#include "kernels/cuda/product.h"

namespace cohort::cuda {
namespace {

// Grid (panels / 4, tokens / 8 N, units).
template <class T, class Kind, int N>
__global__ void __launch_bounds__(32 * kInt8Panels) int8_many_kernel(QuantProduct p, Int8Rows x) {
  int8_many_tile<T, Kind, N>(p, x, std::int64_t{blockIdx.x} * kInt8Panels + threadIdx.x / 32,
                             std::int64_t{blockIdx.y} * (8 * N), blockIdx.z);
}

// Grid (panels, tokens / 8, units).
template <class T, class Kind>
__global__ void __launch_bounds__(32 * kRound) int8_few_kernel(QuantProduct p, Int8Rows x) {
  GPU_SHARED(float2, terms, [kRound][kTerms<Kind>][256]);
  int8_few_tile<T, Kind>(p, x, blockIdx.x, std::int64_t{blockIdx.y} * 8, blockIdx.z, terms);
}

template <class T>
cudaError_t launch(const QuantProduct& p, const Int8Rows& x, cudaStream_t stream) {
  return with_kind(p.w, [&](auto kind) {
    using Kind = decltype(kind);
    const bool few = p.rows <= kFewRows;
    const std::int64_t rows = few ? kQuantPanel : kInt8Panels * kQuantPanel;
    const std::int64_t tokens = few ? 8 : 8 * kInt8Tiles;
    const dim3 grid(static_cast<unsigned>((p.n + rows - 1) / rows),
                    static_cast<unsigned>((p.rows + tokens - 1) / tokens),
                    static_cast<unsigned>(p.units));
    if (few) return gpu::launch(int8_few_kernel<T, Kind>, grid, dim3(32 * kRound), 0, stream, p, x);
    return gpu::launch(int8_many_kernel<T, Kind, kInt8Tiles>, grid, dim3(32 * kInt8Panels), 0,
                       stream, p, x);
  });
}

}  // namespace

cudaError_t int8_product(const QuantProduct& p, const Int8Rows& x, cudaStream_t stream) {
  // T is the narrow type of y, where it has one.
  if (p.out == DType::f16) return launch<__half>(p, x, stream);
  return launch<__nv_bfloat16>(p, x, stream);
}

}  // namespace cohort::cuda
