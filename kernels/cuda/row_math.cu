// SPDX-License-Identifier: Apache-2.0
// Element-wise ops on rows, and norms of the heads in them. All are bound by memory: bytes per
// element 2 A (gate_rows, norm_heads, which reads an element twice, the second time from the first
// cache), 2 A and the bias from the caches (add_bias), 3 A (add).
#include "kernels/cuda/elements.h"
#include "kernels/cuda/exp2_device.h"
#include "kernels/cuda/state.h"
#include "kernels/ops.h"

namespace cohort::cuda {
namespace {

constexpr unsigned kThreads = 256;

// What happens to element `at` of row `row`, kN of them at a time.
struct Gate {
  const float* gate;
  template <int kN>
  GPU_FN void change(float* v, int64_t row, int) const {
    const float s = sigmoid_of(gate[row]);
#pragma unroll
    for (int i = 0; i < kN; i++) v[i] *= s;
  }
};
struct Bias {
  const float* bias;
  template <int kN>
  GPU_FN void change(float* v, int64_t, int at) const {
    float b[kN];
    load_run<kN>(bias + at, b);
#pragma unroll
    for (int i = 0; i < kN; i++) v[i] += b[i];
  }
};
template <class A>
struct Sum {
  const A* x;
  int width;
  template <int kN>
  GPU_FN void change(float* v, int64_t row, int at) const {
    float more[kN];
    load_run<kN>(x + row * width + at, more);
#pragma unroll
    for (int i = 0; i < kN; i++) v[i] += more[i];
  }
};

// A block has kThreads runs of row blockIdx.x, the blockIdx.y-th of them.
template <class A, class Change, int kN>
__global__ void __launch_bounds__(kThreads) change_rows(A* y, int width, Change change) {
  const int at = int(blockIdx.y * blockDim.x + threadIdx.x) * kN;
  if (at >= width) return;
  A* const place = y + int64_t(blockIdx.x) * width + at;
  float v[kN];
  load_run<kN>(place, v);
  change.template change<kN>(v, int64_t(blockIdx.x), at);
  store_run<kN>(place, v);
}

template <class A, class Change>
void run_change(Stream& stream, const Tensor& y, const Change& change, const char* what) {
  const int width = int(y.dim(1));
  const bool wide = is_wide(width);
  const int pieces = wide ? width / kRun : width;
  const unsigned threads = threads_for(pieces, kThreads);
  cuda_check(gpu::launch(wide ? change_rows<A, Change, kRun> : change_rows<A, Change, 1>,
                         dim3(unsigned(y.dim(0)), divide_up(pieces, threads)), dim3(threads), 0,
                         compute(stream), y.as<A>(), width, change),
             what);
}

// The heads of rows [row][width] from column `first` on, in all rows one after another.
struct Heads {
  int width, first, heads, dim;
  int64_t all;
  float eps;
};

// A warp has a head: lane i the runs i, i + 32, ..; lanes are added by a butterfly.
template <class A, int kN>
__global__ void __launch_bounds__(kThreads) norm_heads_kernel(A* x, const float* weight, Heads h) {
  const int64_t head = int64_t(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (head >= h.all) return;
  x += head / h.heads * h.width + h.first + head % h.heads * h.dim;
  const int begin = int(threadIdx.x % 32) * kN;
  float v[kN], w[kN], squares = 0;
  for (int at = begin; at < h.dim; at += 32 * kN) {
    load_run<kN>(x + at, v);
#pragma unroll
    for (int i = 0; i < kN; i++) squares = __fmaf_rn(v[i], v[i], squares);
  }
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2)
    squares += __shfl_xor_sync(0xffffffffu, squares, apart);
  const float scale = __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(squares, float(h.dim)) + h.eps));
  for (int at = begin; at < h.dim; at += 32 * kN) {
    load_run<kN>(x + at, v);
    load_run<kN>(weight + at, w);
#pragma unroll
    for (int i = 0; i < kN; i++) v[i] = v[i] * scale * w[i];
    store_run<kN>(x + at, v);
  }
}

}  // namespace
}  // namespace cohort::cuda

namespace cohort::ops::cuda {
using namespace cohort::cuda;

void gate_rows(Stream& stream, Tensor y, Tensor gate) {
  if (y.elements() == 0) return;
  for_float_type(y.dtype(),
                 [&]<class A>(A*) { run_change<A>(stream, y, Gate{gate.f32()}, "gate_rows"); });
}

void add(Stream& stream, Tensor y, Tensor x) {
  if (y.elements() == 0) return;
  for_float_type(y.dtype(), [&]<class A>(A*) {
    run_change<A>(stream, y, Sum<A>{x.as<const A>(), int(y.dim(1))}, "add");
  });
}

void add_bias(Stream& stream, Tensor y, Tensor bias) {
  if (y.elements() == 0) return;
  for_float_type(y.dtype(),
                 [&]<class A>(A*) { run_change<A>(stream, y, Bias{bias.f32()}, "add_bias"); });
}

void norm_heads(Stream& stream, Tensor x, int64_t first, int64_t heads, Tensor weight, float eps) {
  const int64_t dim = weight.dim(0), all = x.dim(0) * heads;
  if (all == 0 || dim == 0) return;
  const Heads h{int(x.dim(1)), int(first), int(heads), int(dim), all, eps};
  const bool wide = is_wide(x.dim(1)) && is_wide(first) && is_wide(dim);
  for_float_type(x.dtype(), [&]<class A>(A*) {
    cuda_check(gpu::launch(wide ? norm_heads_kernel<A, kRun> : norm_heads_kernel<A, 1>,
                           dim3(divide_up(all, kThreads / 32)), dim3(kThreads), 0, compute(stream),
                           x.as<A>(), weight.f32(), h),
               "norm_heads");
  });
}

}  // namespace cohort::ops::cuda
