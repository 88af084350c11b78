// SPDX-License-Identifier: Apache-2.0
// Products of a group of matrices in f32, for small models and comparisons. A warp has a row of
// weights: lane i adds columns i, i + 32, .. in one chain of fma, and the lanes are then added by a
// butterfly.
#include "kernels/cuda/grouped_device.h"
#include "kernels/cuda/portable.h"
#include "kernels/cuda/quant_layout.h"

namespace cohort::cuda {
namespace {

constexpr int kWarps = kGroupThreads / 32, kTokens = 4;

struct PlainRow {
  const float* at;
  GPU_FN PlainRow(const GroupedProduct& g, int group, std::int64_t row)
      : at(reinterpret_cast<const float*>(g.weights[group]) + row * g.columns) {}
  GPU_FN float operator[](std::int64_t k) const { return at[k]; }
};
struct QuantRow {
  QuantView w;
  std::int64_t row;
  GPU_FN QuantRow(const GroupedProduct& g, int group, std::int64_t r) : w(g.w), row(r) {
    w.data = g.weights[group];
  }
  GPU_FN float operator[](std::int64_t k) const { return quant_value(w, row, k); }
};

GPU_FN float add_lanes(float x) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2)
    x = __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, apart));
  return x;
}

// Grid (rows of weights / 8, matrices that can have rows).
template <class T, class Row>
__global__ void __launch_bounds__(kGroupThreads) grouped_exact_kernel(GroupedProduct g) {
  const int lane = threadIdx.x % 32, group = group_of_block(g);
  const std::int64_t row = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (group < 0 || row >= g.n) return;
  const Row w(g, group, row);
  const int end = g.offsets[group + 1];
#pragma unroll 1
  for (int first = g.offsets[group]; first < end; first += kTokens) {
    const T* x[kTokens];
#pragma unroll
    for (int t = 0; t < kTokens; t++) {
      const int token = first + t < end ? first + t : end - 1;
      x[t] = static_cast<const T*>(g.x) + token * g.columns;
    }
    float sums[kTokens] = {};
    for (std::int64_t k = lane; k < g.columns; k += 32) {
      const float weight = w[k];
#pragma unroll
      for (int t = 0; t < kTokens; t++)
        sums[t] = __fmaf_rn(weight, gpu::to_float(x[t][k]), sums[t]);
    }
#pragma unroll
    for (int t = 0; t < kTokens; t++) {
      const float sum = add_lanes(sums[t]);
      if (lane == 0 && first + t < end)
        static_cast<T*>(g.y)[(first + t) * g.y_stride + row] = gpu::from_float<T>(sum);
    }
  }
}

template <class T, class Row>
cudaError_t launch(const GroupedProduct& p, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((p.n + kWarps - 1) / kWarps),
                  static_cast<unsigned>(p.most_used));
  return gpu::launch(grouped_exact_kernel<T, Row>, grid, dim3(kGroupThreads), 0, stream, p);
}

}  // namespace

cudaError_t grouped_exact(const GroupedProduct& p, bool quantised, cudaStream_t stream) {
  if (!quantised) return launch<float, PlainRow>(p, stream);
  if (p.in == DType::f16) return launch<__half, QuantRow>(p, stream);
  if (p.in == DType::bf16) return launch<__nv_bfloat16, QuantRow>(p, stream);
  return launch<float, QuantRow>(p, stream);
}

}  // namespace cohort::cuda
