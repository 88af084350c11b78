// SPDX-License-Identifier: Apache-2.0
// Everything in f32: a quantised weight becomes f32, and one chain of fma runs over columns
// (docs/arithmetic.md section 1). For comparisons, so plain rather than fast.
#include "kernels/cuda/portable.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/quant_layout.h"

namespace cohort::cuda {
namespace {

// Grid (outputs / 128, rows, units), a thread an output.
template <class T>
__global__ void __launch_bounds__(128) exact_kernel(QuantProduct p) {
  const std::int64_t row = std::int64_t{blockIdx.x} * 128 + threadIdx.x, token = blockIdx.y;
  const std::int64_t unit = blockIdx.z, begin = unit * p.unit_columns;
  if (row >= p.n) return;
  const T* x = static_cast<const T*>(p.x) + token * p.columns;
  float sum = 0.0f;
  for (std::int64_t k = begin; k < begin + p.unit_columns; k++)
    sum = __fmaf_rn(quant_value(p.w, row, k), gpu::to_float(x[k]), sum);
  const std::int64_t at = unit * p.y_unit + token * p.y_stride + row;
  if (p.out == DType::f32)
    static_cast<float*>(p.y)[at] = sum;
  else
    static_cast<T*>(p.y)[at] = gpu::from_float<T>(sum);
}

template <class T>
cudaError_t launch(const QuantProduct& p, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((p.n + 127) / 128), static_cast<unsigned>(p.rows),
                  static_cast<unsigned>(p.units));
  return gpu::launch(exact_kernel<T>, grid, dim3(128), 0, stream, p);
}

}  // namespace

cudaError_t exact_product(const QuantProduct& p, cudaStream_t stream) {
  if (p.in == DType::f16) return launch<__half>(p, stream);
  if (p.in == DType::bf16) return launch<__nv_bfloat16>(p, stream);
  return launch<float>(p, stream);
}

}  // namespace cohort::cuda
