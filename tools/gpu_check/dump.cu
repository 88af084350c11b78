// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/dump.h"

#include "base/device_cuda.h"
#include "kernels/cuda/portable.h"

namespace cohort::gpu_check {
namespace {

constexpr unsigned kAll = 0xffffffffu;

// This lane's words of a probe with `n` per lane.
GPU_FN const uint32_t* mine(const uint32_t* in, int n) {
  return in + (blockIdx.x * 32 + threadIdx.x) * unsigned(n);
}
GPU_FN uint32_t* mine(uint32_t* out, int n) {
  return out + (blockIdx.x * 32 + threadIdx.x) * unsigned(n);
}

struct Bf16 {
  static GPU_FN void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    gpu::mma_m16n8k16_bf16(d, a, b);
  }
};
struct F16 {
  static GPU_FN void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    gpu::mma_m16n8k16_f16(d, a, b);
  }
};

template <class Type>
__global__ void mma_kernel(const uint32_t* in, uint32_t* out) {
  const uint32_t* x = mine(in, 6);
  const uint32_t a[4] = {x[0], x[1], x[2], x[3]}, b[2] = {x[4], x[5]};
  float d[4] = {0.5f, -0.25f, 0.125f, float(threadIdx.x)};
  Type::multiply(d, a, b);
  for (int i = 0; i < 4; i++) mine(out, 4)[i] = __float_as_uint(d[i]);
}

__global__ void mma_s8_kernel(const uint32_t* in, uint32_t* out) {
  const uint32_t* x = mine(in, 6);
  const uint32_t a[4] = {x[0], x[1], x[2], x[3]}, b[2] = {x[4], x[5]};
  int32_t d[4] = {1, -2, 3, int32_t(threadIdx.x)};
  gpu::mma_m16n8k32_s8(d, a, b);
  for (int i = 0; i < 4; i++) mine(out, 4)[i] = uint32_t(d[i]);
}

__global__ void ldmatrix_kernel(const uint32_t* in, uint32_t* out) {
  GPU_SHARED(uint4, rows, [32]);
  const uint32_t* x = mine(in, 4);
  rows[threadIdx.x] = make_uint4(x[0], x[1], x[2], x[3]);
  __syncwarp();
  uint32_t four[4], turned[4], two[2], turned_two[2];
  const uint4* row = &rows[(threadIdx.x * 5 + 3) % 32];
  gpu::ldmatrix_x4(four, row);
  gpu::ldmatrix_x4_trans(turned, row);
  gpu::ldmatrix_x2(two, row);
  gpu::ldmatrix_x2_trans(turned_two, row);
  uint32_t* y = mine(out, 12);
  for (int i = 0; i < 4; i++) {
    y[i] = four[i];
    y[4 + i] = turned[i];
  }
  for (int i = 0; i < 2; i++) {
    y[8 + i] = two[i];
    y[10 + i] = turned_two[i];
  }
}

__global__ void warp_kernel(const uint32_t* in, uint32_t* out) {
  const uint32_t v = *mine(in, 1);
  uint32_t* y = mine(out, 10);
  y[0] = __shfl_xor_sync(kAll, v, 5);
  y[1] = __shfl_up_sync(kAll, v, 3);
  y[2] = __shfl_down_sync(kAll, v, 2, 16);
  y[3] = __shfl_sync(kAll, v, int(threadIdx.x * 7 + 1) % 32);
  y[4] = __ballot_sync(kAll, int(v & 1));
  y[5] = __reduce_max_sync(kAll, v);
  y[6] = uint32_t(__any_sync(kAll, v == 0));
  y[7] = __byte_perm(v, y[0], v & 0x7777);
  y[8] = uint32_t(__ffs(int(v)));
  y[9] = uint32_t(__popc(v));
}

__global__ void exp2_kernel(const uint32_t* in, uint32_t* out) {
  *mine(out, 1) = __float_as_uint(gpu::exp2_approx(__uint_as_float(*mine(in, 1))));
}

__global__ void divide_kernel(const uint32_t* in, uint32_t* out) {
  const uint32_t* x = mine(in, 2);
  *mine(out, 1) = __float_as_uint(__fdividef(__uint_as_float(x[0]), __uint_as_float(x[1])));
}

__global__ void arithmetic_kernel(const uint32_t* in, uint32_t* out) {
  const float a = __uint_as_float(mine(in, 2)[0]), b = __uint_as_float(mine(in, 2)[1]);
  uint32_t* y = mine(out, 5);
  y[0] = __float_as_uint(__fdiv_rn(a, b));
  y[1] = __float_as_uint(__fsqrt_rn(fabsf(a)));
  y[2] = __float_as_uint(__fmaf_rn(a, b, a));
  y[3] = __float_as_uint(__fmul_rn(a, b));
  y[4] = __float_as_uint(__fadd_rn(a, b));
}

// Rounds floats to the narrow types. The results are integers: no input is NaN.
__global__ void narrow_kernel(const uint32_t* in, uint32_t* out) {
  const float a = __uint_as_float(mine(in, 2)[0]), b = __uint_as_float(mine(in, 2)[1]);
  uint32_t* y = mine(out, 4);
  y[0] = gpu::pack2<__half>(a, b);
  y[1] = gpu::pack2<__nv_bfloat16>(a, b);
  y[2] = gpu::pack2<__nv_fp8_e4m3>(a, b);
  y[3] = gpu::value_of<__nv_fp8_e4m3, uint8_t>(gpu::from_float<__nv_fp8_e4m3>(b));
}

__global__ void widen_kernel(const uint32_t* in, uint32_t* out) {
  const uint32_t v = *mine(in, 1);
  uint32_t* y = mine(out, 6);
  const float2 all[3] = {gpu::unpack2<__half>(v), gpu::unpack2<__nv_bfloat16>(v),
                         gpu::unpack2<__nv_fp8_e4m3>(v & 0xffffu)};
  for (int i = 0; i < 3; i++) {
    y[2 * i] = __float_as_uint(all[i].x);
    y[2 * i + 1] = __float_as_uint(all[i].y);
  }
}

template <auto kernel>
void run(cudaStream_t stream, int warps, const uint32_t* in, uint32_t* out) {
  cuda_check(gpu::launch(kernel, dim3(unsigned(warps)), dim3(32), 0, stream, in, out), "probe");
}

}  // namespace

std::vector<Probe> probes() {
  return {
      {"mma m16n8k16 bf16", 32, 1, true, Input::bf16_pairs, 4, 6, 4, run<mma_kernel<Bf16>>},
      {"mma m16n8k16 f16", 32, 1, true, Input::f16_pairs, 4, 6, 4, run<mma_kernel<F16>>},
      {"mma m16n8k32 s8", -1, 0, false, Input::bits, 4, 6, 4, run<mma_s8_kernel>},
      {"ldmatrix", -1, 0, false, Input::bits, 1, 4, 12, run<ldmatrix_kernel>},
      {"shuffles, votes, bits", -1, 0, false, Input::bits, 1, 1, 10, run<warp_kernel>},
      {"ex2.approx.ftz", 2, 0, true, Input::floats, 8, 1, 1, run<exp2_kernel>},
      {"__fdividef", 2, 0, true, Input::floats, 8, 2, 1, run<divide_kernel>},
      {"f32 arithmetic", -1, 0, true, Input::floats, 2, 2, 5, run<arithmetic_kernel>},
      {"rounding to f16, bf16, e4m3", -1, 0, false, Input::floats, 4, 2, 4, run<narrow_kernel>},
      {"widening f16, bf16, e4m3", -1, 0, true, Input::bits, 4, 1, 6, run<widen_kernel>},
  };
}

}  // namespace cohort::gpu_check
