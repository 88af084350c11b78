// SPDX-License-Identifier: Apache-2.0
// Activation functions and the search for NaN and infinity.
//
// Bytes per element of the result: silu_mul and gelu_mul 3 A for 8 and 12 FLOPs, find_not_finite 4
// for 1: bound by memory.
#include "kernels/cuda/elementwise.h"

#include "kernels/cuda/elements.h"
#include "kernels/cuda/state.h"
#include "kernels/ops.h"

namespace cohort::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr float kLog2E = 1.4426950408889634f;

struct Silu {
  // Far below zero the exponential is infinite and the result -0; a NaN stays one.
  static GPU_FN float of(float x) { return __fdividef(x, 1.0f + gpu::exp2_approx(x * -kLog2E)); }
};
struct Gelu {
  // (1 + tanh u) / 2 = 1 / (1 + e^(-2 u))
  static GPU_FN float of(float x) {
    constexpr float kScale = -2 * 0.7978845608028654f * kLog2E;  // sqrt(2 / pi)
    const float u = kScale * x * __fmaf_rn(0.044715f * x, x, 1.0f);
    return __fdividef(x, 1.0f + gpu::exp2_approx(u));
  }
};

// A block has kThreads runs of row blockIdx.x, the blockIdx.y-th of them.
template <class A, class F, int kN>
__global__ void __launch_bounds__(kThreads) gated(A* out, const A* gate_up, int width) {
  const int at = int(blockIdx.y * blockDim.x + threadIdx.x) * kN;
  if (at >= width) return;
  const A* gate = gate_up + int64_t(blockIdx.x) * 2 * width + at;
  float g[kN], u[kN];
  load_run<kN>(gate, g);
  load_run<kN>(gate + width, u);
#pragma unroll
  for (int i = 0; i < kN; i++) u[i] *= F::of(g[i]);
  store_run<kN>(out + int64_t(blockIdx.x) * width + at, u);
}

template <class A, class F>
cudaError_t launch_gated(cudaStream_t stream, const Tensor& out, const Tensor& gate_up) {
  const int width = int(out.dim(1));
  const bool wide = is_wide(width);
  const int pieces = wide ? width / kRun : width;
  const unsigned threads = threads_for(pieces, kThreads);
  return gpu::launch(wide ? gated<A, F, kRun> : gated<A, F, 1>,
                     dim3(unsigned(out.dim(0)), divide_up(pieces, threads)), dim3(threads), 0,
                     stream, out.as<A>(), gate_up.as<const A>(), width);
}

template <class F>
void run_gated(Stream& stream, const Tensor& out, const Tensor& gate_up, const char* what) {
  if (out.elements() == 0) return;
  for_float_type(out.dtype(), [&]<class A>(A*) {
    cuda_check(launch_gated<A, F>(compute(stream), out, gate_up), what);
  });
}

// Several blocks share a row, which may be as wide as a vocabulary. They all write the same code,
// so that it does not matter which of them is first.
constexpr int kRunsOfSearch = 4;
template <int kN>
__global__ void __launch_bounds__(kThreads)
    search_not_finite(int32_t* errors, const float* x, int width, int32_t code) {
  x += int64_t(blockIdx.x) * width;
  const int begin = int(blockIdx.y * kRunsOfSearch * blockDim.x + threadIdx.x) * kN;
  bool bad = false;
#pragma unroll
  for (int r = 0; r < kRunsOfSearch; r++) {
    const int at = begin + r * int(blockDim.x) * kN;
    if (at >= width) continue;
    float v[kN];
    load_run<kN>(x + at, v);
#pragma unroll
    for (int i = 0; i < kN; i++) bad |= !is_finite(v[i]);
  }
  if (__syncthreads_or(bad) && threadIdx.x == 0) atomicCAS(errors + blockIdx.x, -1, code);
}

}  // namespace

void gelu_mul(Stream& stream, Tensor out, Tensor gate_up) {
  COHORT_CHECK(out.dtype() == stream.activations() && gate_up.dtype() == out.dtype());
  COHORT_CHECK_EQ(gate_up.dim(0), out.dim(0));
  COHORT_CHECK_EQ(gate_up.dim(1), 2 * out.dim(1));
  run_gated<Gelu>(stream, out, gate_up, "gelu_mul");
}

}  // namespace cohort::cuda

namespace cohort::ops::cuda {
using namespace cohort::cuda;

void silu_mul(Stream& stream, Tensor out, Tensor gate_up) {
  run_gated<Silu>(stream, out, gate_up, "silu_mul");
}

void find_not_finite(Stream& stream, Tensor errors, Tensor x, int32_t code) {
  if (x.elements() == 0) return;
  const int width = int(x.dim(1));
  const bool wide = is_wide(width);
  const int pieces = wide ? width / kRun : width;
  const unsigned threads = threads_for(pieces, kThreads);
  const dim3 grid(unsigned(x.dim(0)), divide_up(pieces, threads * kRunsOfSearch));
  cuda_check(gpu::launch(wide ? search_not_finite<kRun> : search_not_finite<1>, grid, dim3(threads),
                         0, compute(stream), errors.i32(), x.f32(), width, code),
             "find_not_finite");
}

}  // namespace cohort::ops::cuda
