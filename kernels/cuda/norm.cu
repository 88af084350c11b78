// SPDX-License-Identifier: Apache-2.0
// Norms and the residual stream. A block has one row; what a thread adds, and the tree that adds
// threads, follow from the width alone.
//
// Bytes per element: rms_norm 4 + A, add_rms_norm 8 + Y + A (x in and out, y in, out), add_residual
// 8 + Y, for A and Y of 4 or 2 bytes; the norm's weights stay in the caches. About 5 FLOPs each, so
// all are bound by memory. Rows of up to 16384 elements are read once and kept in registers.
#include "kernels/cuda/elements.h"
#include "kernels/cuda/state.h"
#include "kernels/ops.h"

namespace cohort::cuda {
namespace {

constexpr unsigned kNormThreads = 512;
constexpr int kMaxRuns = 4;  // of a thread, in registers

// The same on all threads; every thread of the block takes part. Butterflies within warps, then
// over warps: a fixed tree of the block's size.
GPU_FN float block_sum(float x) {
  GPU_SHARED(float, sums, [32]);
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) x += __shfl_xor_sync(0xffffffffu, x, apart);
  if (lane == 0) sums[warp] = x;
  __syncthreads();
  x = lane < blockDim.x / 32 ? sums[lane] : 0.0f;
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) x += __shfl_xor_sync(0xffffffffu, x, apart);
  return x;
}

GPU_FN void mark(int32_t* error, int32_t code) {
  if (*error == -1) *error = code;
}

// out A, x f32, y f32 or A; y and errors are null where nothing is added.
template <class A, class Y>
struct NormRows {
  A* out;
  float* x;
  const Y* y;
  const float* weight;
  int32_t* errors;
};
struct NormScalars {
  int width;
  float eps;
  int32_t code;
};

GPU_FN int64_t row_begin(const NormScalars& s) { return int64_t(blockIdx.x) * s.width; }

GPU_FN float scale_of(float squares, const NormScalars& s) {
  return __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(squares, float(s.width)) + s.eps));
}

template <int kN>
GPU_FN float add_squares(float squares, const float* v) {
#pragma unroll
  for (int i = 0; i < kN; i++) squares = __fmaf_rn(v[i], v[i], squares);
  return squares;
}

template <int kN, class A>
GPU_FN void write_run(A* out, float scale, const float* v, const float* w) {
  float y[kN];
#pragma unroll
  for (int i = 0; i < kN; i++) y[i] = v[i] * scale * w[i];
  store_run<kN>(out, y);
}

// The runs of one thread of a row in registers: r * step elements after its first.
template <int kRuns>
struct Runs {
  int first = int(threadIdx.x) * kRun, step = int(blockDim.x) * kRun, width;
  float v[kRuns][kRun];

  GPU_FN explicit Runs(int n) : width(n) {}
  GPU_FN bool has(int r) const { return first + r * step < width; }
  template <class T>
  GPU_FN void load(const T* row) {
#pragma unroll
    for (int r = 0; r < kRuns; r++)
      if (has(r)) load_run<kRun>(row + first + r * step, v[r]);
  }
  GPU_FN bool all_finite() const {
    bool good = true;
#pragma unroll
    for (int r = 0; r < kRuns; r++)
      for (int i = 0; i < kRun; i++) good &= !has(r) || is_finite(v[r][i]);
    return good;
  }
};

// v += y, and into x. Everything is loaded before anything is stored, so that all loads are on
// their way at once.
template <class Y, int kRuns>
GPU_FN void add_runs(Runs<kRuns>& x, const Y* y, float* out) {
  Runs<kRuns> more(x.width);
  more.load(y);
#pragma unroll
  for (int r = 0; r < kRuns; r++)
    if (x.has(r)) {
#pragma unroll
      for (int i = 0; i < kRun; i++) x.v[r][i] += more.v[r][i];
      store_run<kRun>(out + x.first + r * x.step, x.v[r]);
    }
}

// A row in registers. All of it is read before anything is written to out, which may be x or y.
template <class A, class Y, int kRuns, bool kAdd>
__global__ void __launch_bounds__(kNormThreads)
    norm_in_registers(NormRows<A, Y> rows, NormScalars s) {
  constexpr bool kWeightsFirst = kRuns <= 2;  // where registers are left, under the sum's latency
  Runs<kRuns> x(s.width), weight(s.width);
  x.load(rows.x + row_begin(s));
  if (kAdd) add_runs(x, rows.y + row_begin(s), rows.x + row_begin(s));
  if (kWeightsFirst) weight.load(rows.weight);
  float squares = 0;
#pragma unroll
  for (int r = 0; r < kRuns; r++)
    if (x.has(r)) squares = add_squares<kRun>(squares, x.v[r]);
  squares = block_sum(squares);
  // NaN or infinity in the row leaves its mark on the sum, which can overflow without them: only
  // then the elements are looked at.
  if (kAdd && !is_finite(squares))
    if (__syncthreads_or(!x.all_finite()) && threadIdx.x == 0)
      mark(rows.errors + blockIdx.x, s.code);
  if (!kWeightsFirst) weight.load(rows.weight);
  const float scale = scale_of(squares, s);
#pragma unroll
  for (int r = 0; r < kRuns; r++)
    if (x.has(r))
      write_run<kRun>(rows.out + row_begin(s) + x.first + r * x.step, scale, x.v[r], weight.v[r]);
}

// Any width: x is read again for the second pass.
template <class A, class Y, int kN, bool kAdd>
__global__ void __launch_bounds__(kNormThreads)
    norm_in_two_passes(NormRows<A, Y> rows, NormScalars s) {
  const int first = int(threadIdx.x) * kN, step = int(blockDim.x) * kN;
  float* x = rows.x + row_begin(s);
  float squares = 0, v[kN], more[kN];
  bool bad = false;
  for (int at = first; at < s.width; at += step) {
    load_run<kN>(x + at, v);
    if constexpr (kAdd) {
      load_run<kN>(rows.y + row_begin(s) + at, more);
#pragma unroll
      for (int i = 0; i < kN; i++) {
        v[i] += more[i];
        bad |= !is_finite(v[i]);
      }
      store_run<kN>(x + at, v);
    }
    squares = add_squares<kN>(squares, v);
  }
  const float scale = scale_of(block_sum(squares), s);
  if (kAdd && __syncthreads_or(bad) && threadIdx.x == 0) mark(rows.errors + blockIdx.x, s.code);
  for (int at = first; at < s.width; at += step) {
    load_run<kN>(x + at, v);
    load_run<kN>(rows.weight + at, more);
    write_run<kN>(rows.out + row_begin(s) + at, scale, v, more);
  }
}

template <class Y, int kN>
__global__ void __launch_bounds__(kNormThreads)
    add_to_residual(float* x, const Y* y, int32_t* errors, int width, int32_t code) {
  x += int64_t(blockIdx.x) * width;
  y += int64_t(blockIdx.x) * width;
  bool bad = false;
  for (int at = int(threadIdx.x) * kN; at < width; at += int(blockDim.x) * kN) {
    float v[kN], more[kN];
    load_run<kN>(x + at, v);
    load_run<kN>(y + at, more);
#pragma unroll
    for (int i = 0; i < kN; i++) {
      v[i] += more[i];
      bad |= !is_finite(v[i]);
    }
    store_run<kN>(x + at, v);
  }
  if (__syncthreads_or(bad) && threadIdx.x == 0) mark(errors + blockIdx.x, code);
}

template <bool kAdd, class A, class Y>
cudaError_t launch_norm(cudaStream_t stream, int64_t rows, const NormRows<A, Y>& all,
                        const NormScalars& s) {
  const int64_t pieces = is_wide(s.width) ? s.width / kRun : s.width;
  const unsigned threads = threads_for(pieces, kNormThreads);
  const auto launch = [&](void (*kernel)(NormRows<A, Y>, NormScalars)) {
    return gpu::launch(kernel, dim3(unsigned(rows)), dim3(threads), 0, stream, all, s);
  };
  if (!is_wide(s.width)) return launch(norm_in_two_passes<A, Y, 1, kAdd>);
  if (pieces <= threads) return launch(norm_in_registers<A, Y, 1, kAdd>);
  if (pieces <= 2 * threads) return launch(norm_in_registers<A, Y, 2, kAdd>);
  if (pieces <= kMaxRuns * threads) return launch(norm_in_registers<A, Y, kMaxRuns, kAdd>);
  return launch(norm_in_two_passes<A, Y, kRun, kAdd>);
}

template <class Y>
void launch_add(cudaStream_t stream, const Tensor& x, const Tensor& y, const Tensor& errors,
                int32_t code) {
  const int width = int(x.dim(1));
  const bool wide = is_wide(width);
  cuda_check(
      gpu::launch(wide ? add_to_residual<Y, kRun> : add_to_residual<Y, 1>, dim3(unsigned(x.dim(0))),
                  dim3(threads_for(wide ? width / kRun : width, kNormThreads)), 0, stream, x.f32(),
                  y.as<const Y>(), errors.i32(), width, code),
      "add_residual");
}

}  // namespace
}  // namespace cohort::cuda

namespace cohort::ops::cuda {
using namespace cohort::cuda;

void rms_norm(Stream& stream, Tensor out, Tensor x, Tensor weight, float eps) {
  if (x.elements() == 0) return;
  for_float_type(out.dtype(), [&]<class A>(A*) {
    const NormRows<A, A> all{out.as<A>(), x.f32(), nullptr, weight.f32(), nullptr};
    cuda_check(launch_norm<false>(compute(stream), x.dim(0), all, {int(x.dim(1)), eps, 0}),
               "rms_norm");
  });
}

void add_residual(Stream& stream, Tensor x, Tensor y, Tensor errors, int32_t code) {
  if (x.elements() == 0) return;
  for_float_type(y.dtype(),
                 [&]<class Y>(Y*) { launch_add<Y>(compute(stream), x, y, errors, code); });
}

void add_rms_norm(Stream& stream, Tensor out, Tensor x, Tensor y, Tensor weight, float eps,
                  Tensor errors, int32_t code) {
  if (x.elements() == 0) return;
  const auto run = [&]<class A, class Y>(A*, Y*) {
    const NormRows<A, Y> all{out.as<A>(), x.f32(), y.as<const Y>(), weight.f32(), errors.i32()};
    cuda_check(launch_norm<true>(compute(stream), x.dim(0), all, {int(x.dim(1)), eps, code}),
               "add_rms_norm");
  };
  for_float_type(out.dtype(), [&]<class A>(A* a) {
    if (y.dtype() == DType::f32) return run(a, static_cast<float*>(nullptr));
    COHORT_CHECK(y.dtype() == out.dtype());
    run(a, a);
  });
}

}  // namespace cohort::ops::cuda
