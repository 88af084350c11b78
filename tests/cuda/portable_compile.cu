// SPDX-License-Identifier: Apache-2.0
// Uses everything that kernels may take from portable.h once. nvcc compiles it, so that what the
// emulation offers exists on a GPU too, under the same name.
#include "kernels/cuda/portable.h"

namespace cohort {
namespace {
struct Bytes16 {
  __nv_bfloat162 pairs[4];
};

__global__ void memory_kernel(const Bytes16* in, Bytes16* out, bool pred) {
  GPU_SHARED(float, sums, [32]);
  auto* tile = gpu::dynamic_shared<Bytes16>();
  gpu::cp_async16(&tile[threadIdx.x], &in[threadIdx.x], pred);
  gpu::cp_async_commit();
  gpu::cp_async_wait<1>();
  gpu::cp_async_wait<0>();
  sums[threadIdx.x % 32] = gpu::load4<float>(in);
  __syncthreads();
  gpu::store16(out, gpu::load16<Bytes16>(&tile[threadIdx.x ^ 1]));
  gpu::store16(out + 1, gpu::load16_stream<Bytes16>(in));
  gpu::store8(out + 2, gpu::load8<float2>(in + 1));
  gpu::store4(out + 3, sums[threadIdx.x / 2] + __ldg(reinterpret_cast<const float*>(in)));
}

__device__ void use_lanes(unsigned mask, int v, unsigned u, unsigned* out) {
  double d = __shfl_sync(mask, 1.0 * v, 3);
  d += __shfl_up_sync(mask, 1.0f * v, 1, 16);
  d += __shfl_down_sync(mask, v, 2);
  d += static_cast<double>(__shfl_xor_sync(mask, static_cast<unsigned long long>(u), 4));
  out[0] = static_cast<unsigned>(d);
  out[1] = __ballot_sync(mask, v) + __any_sync(mask, v) + __all_sync(mask, v) + __activemask();
  out[2] = __match_any_sync(mask, v) + __match_any_sync(mask, 1ull * u);
  out[3] = __reduce_add_sync(mask, u) + __reduce_min_sync(mask, u) + __reduce_max_sync(mask, u);
  const int all =
      __reduce_add_sync(mask, v) + __reduce_min_sync(mask, v) + __reduce_max_sync(mask, v);
  out[4] = static_cast<unsigned>(all);
  out[5] = __reduce_and_sync(mask, u) + __reduce_or_sync(mask, u) + __reduce_xor_sync(mask, u);
  __syncwarp(mask);
  __syncwarp();
}

__global__ void threads_kernel(unsigned* out, int v) {
  use_lanes(0xffffffffu, v, out[threadIdx.x], out + 32 * blockIdx.x);
  out[6] =
      static_cast<unsigned>(__syncthreads_or(v) + __syncthreads_and(v) + __syncthreads_count(v));
  gpu::named_barrier(1 + static_cast<int>(threadIdx.x) / 64, 64);
  out[7] = blockDim.x + gridDim.x + threadIdx.y + blockIdx.z + static_cast<unsigned>(warpSize);
}

__global__ void atomics_kernel(int* i, unsigned* u, unsigned long long* l, long long* s) {
  i[1] = atomicAdd(i, 1) + atomicSub(i, 1) + atomicMax(i, 1) + atomicMin(i, 1) + atomicExch(i, 1) +
         atomicCAS(i, 1, 2) + atomicOr(i, 1) + atomicAnd(i, 1);
  u[1] = atomicAdd(u, 1) + atomicSub(u, 1) + atomicMax(u, 1) + atomicMin(u, 1) + atomicExch(u, 1) +
         atomicCAS(u, 1, 2) + atomicOr(u, 1) + atomicAnd(u, 1) + atomicInc(u, 7);
  l[1] = atomicAdd(l, 1) + atomicMax(l, 1) + atomicMin(l, 1) + atomicExch(l, 1) +
         atomicCAS(l, 1, 2) + atomicOr(l, 1) + atomicAnd(l, 1);
  s[1] = atomicMax(s, 1) + atomicMin(s, 1);
  __threadfence();
  __threadfence_block();
}

__global__ void integers_kernel(unsigned* out, unsigned u, int i, long long l) {
  out[0] = static_cast<unsigned>(__popc(u) + __popcll(l) + __clz(i) + __clzll(l) + __ffs(i) +
                                 __ffsll(l) + __mulhi(i, 3));
  out[1] = __brev(u) + __umulhi(u, u) + __byte_perm(u, u, 0x3210u);
  out[2] = static_cast<unsigned>(__dp4a(i, i, i)) + __dp4a(u, u, u);
  out[3] = static_cast<unsigned>(__umul64hi(static_cast<unsigned long long>(l), u));
  out[4] = static_cast<unsigned>(min(i, 3) + max(i, 4)) + min(u, 3u) + max(u, 4u);
  out[5] = static_cast<unsigned>(min(l, 3ll) + max(l, 4ll));
}

__global__ void floats_kernel(float* out, float x, float y, double d) {
  out[0] = __fadd_rn(x, y) + __fsub_rn(x, y) + __fmul_rn(x, y) + __fdiv_rn(x, y);
  out[1] = __fmaf_rn(x, y, x) + fmaf(x, y, x) + __fsqrt_rn(x) + __frcp_rn(x) + sqrtf(x);
  d = __dadd_rn(d, d) + __dsub_rn(d, d) + __dmul_rn(d, d) + __ddiv_rn(d, d) + __fma_rn(d, d, d);
  out[2] = __double2float_rn(d + __dsqrt_rn(d) + rsqrt(d) + fmax(d, 1.0) + __int2double_rn(3));
  out[3] = rsqrtf(x) + __frsqrt_rn(x) + __expf(x) + __logf(x) + __log2f(x) + __fdividef(x, y);
  out[4] = gpu::exp2_approx(x) + exp2f(x) + expf(x) + logf(x) + log1pf(x) + __saturatef(x);
  out[5] = fminf(x, y) + fmaxf(x, y) + min(x, y) + max(x, y) + fabsf(x) + copysignf(x, y);
  out[6] = __uint_as_float(__float_as_uint(x)) + __int_as_float(__float_as_int(x));
  out[7] = static_cast<float>(__longlong_as_double(__double_as_longlong(d)));
  out[8] = static_cast<float>(__float2int_rn(x) + __float2int_rz(x) + __float2int_rd(x) +
                              __float2int_ru(x));
  out[9] = static_cast<float>(__float2uint_rn(x) + __float2uint_rz(x)) + __int2float_rn(2) +
           __uint2float_rn(3);
  out[10] = floorf(x) + rintf(x) + truncf(x) + tanhf(x) + (isnan(x) || isinf(x) ? 1.0f : 0.0f);
}

template <class T>
__device__ void use_type(float* out, T* values, std::uint32_t* words) {
  values[1] = gpu::from_float<T>(gpu::to_float(values[0]));
  words[1] = gpu::pack2<T>(out[0], out[1]);
  const float2 pair = gpu::unpack2<T>(words[0]);
  out[2] = pair.x + pair.y;
}
__global__ void conversions_kernel(float* out, std::uint32_t* words) {
  use_type(out, reinterpret_cast<__half*>(words + 2), words);
  use_type(out, reinterpret_cast<__nv_bfloat16*>(words + 2), words);
  use_type(out, reinterpret_cast<__nv_fp8_e4m3*>(words + 2), words);
  out[3] = gpu::from_float<float>(gpu::to_float(out[3]));
}

__global__ void matrix_kernel(float* out, std::int32_t* out_s8) {
  const auto* tile = gpu::dynamic_shared<uint4>();
  std::uint32_t a[4], b[2];
  float d[4] = {};
  std::int32_t e[4] = {};
  gpu::ldmatrix_x4(a, tile + threadIdx.x);
  gpu::ldmatrix_x2(b, tile + threadIdx.x);
  gpu::mma_m16n8k16_bf16(d, a, b);
  gpu::ldmatrix_x4_trans(a, tile + threadIdx.x);
  gpu::ldmatrix_x2_trans(b, tile + threadIdx.x);
  gpu::mma_m16n8k16_f16(d, a, b);
  gpu::mma_m16n8k32_s8(e, a, b);
  out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
  out_s8[threadIdx.x] = e[0] + e[1] + e[2] + e[3];
}
}  // namespace

// Compiled, never called.
cudaError_t launch_all(cudaStream_t stream, void* memory) {
  auto* floats = static_cast<float*>(memory);
  auto* words = static_cast<std::uint32_t*>(memory);
  auto* bytes = static_cast<Bytes16*>(memory);
  auto* ints = static_cast<int*>(memory);
  auto* longs = static_cast<long long*>(memory);
  if (const auto e = gpu::allow_shared(memory_kernel, 96 << 10)) return e;
  const cudaError_t errors[] = {
      gpu::launch(memory_kernel, 1, 32, 96 << 10, stream, bytes, bytes, true),
      gpu::launch(threads_kernel, 1, 64, 0, stream, words, 1),
      gpu::launch(atomics_kernel, 1, 64, 0, stream, ints, words,
                  static_cast<unsigned long long*>(memory), longs),
      gpu::launch(integers_kernel, 1, 64, 0, stream, words, 1u, 1, 1),
      gpu::launch(floats_kernel, 1, 64, 0, stream, floats, 1.0f, 1.0f, 1.0),
      gpu::launch(conversions_kernel, 1, 64, 0, stream, floats, words),
      gpu::launch(matrix_kernel, dim3(1, 2), 32, 1024, stream, floats, ints)};
  for (const auto e : errors)
    if (e != cudaSuccess) return e;
  return cudaSuccess;
}
}  // namespace cohort
