// SPDX-License-Identifier: Apache-2.0
// The only header a kernel file includes. Under nvcc it is CUDA with thin PTX wrappers;
// under a host compiler it is the test emulation. Kernels never write <<<>>>, extern
// __shared__ or asm themselves: everything a host compiler cannot parse is wrapped here.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#if defined(__CUDACC__)
#define GPU_FN __device__ __forceinline__
#else
#define GPU_FN inline
#endif

namespace gpu {
// One 8- or 16-byte access whatever T looks like. A plain load of a struct of __nv_bfloat162 is
// split by nvcc into 2-byte loads, so kernels must use these (the PTX test counts the wide ones).
template <class W, class T>
GPU_FN T load_as(const void* p) {
  static_assert(sizeof(W) == sizeof(T));
  union U {
    W w;
    T t;
    __host__ __device__ U() {}
  } u;
  u.w = *static_cast<const W*>(p);
  return u.t;
}
template <class W, class T>
GPU_FN void store_as(void* p, const T& t) {
  static_assert(sizeof(W) == sizeof(T));
  union U {
    W w;
    T t;
    __host__ __device__ U() {}
  } u;
  u.t = t;
  *static_cast<W*>(p) = u.w;
}
template <class T>
GPU_FN T load16(const void* p) {
  return load_as<uint4, T>(p);
}
template <class T>
GPU_FN T load8(const void* p) {
  return load_as<uint2, T>(p);
}
template <class T>
GPU_FN void store16(void* p, const T& t) {
  store_as<uint4>(p, t);
}
}  // namespace gpu

#if defined(__CUDACC__)
#include <utility>

#define GPU_SHARED(T, name, dims) __shared__ T name dims

namespace gpu {
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char gpu_dynamic_shared_raw[];
  return reinterpret_cast<T*>(gpu_dynamic_shared_raw);
}

template <class... P, class... A>
cudaError_t launch(void (*k)(P...), dim3 grid, dim3 block, std::size_t smem, cudaStream_t s,
                   A&&... a) {
  cudaLaunchConfig_t cfg{};
  cfg.gridDim = grid;
  cfg.blockDim = block;
  cfg.dynamicSmemBytes = smem;
  cfg.stream = s;
  return cudaLaunchKernelEx(&cfg, k, static_cast<P>(a)...);
}

__device__ __forceinline__ std::uint32_t smem_u32(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void cp_async16(void* d, const void* s, bool pred = true) {
  int n = pred ? 16 : 0;  // src-size 0 zero-fills the destination
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(smem_u32(d)), "l"(s), "r"(n)
               : "memory");
}
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}
template <int N>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(N) : "memory");
}
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(smem_u32(row))
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(smem_u32(row))
               : "memory");
}
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const std::uint32_t (&a)[4],
                                                  const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
}  // namespace gpu
#else
#include "tests/cuda_emulation/device.h"
#endif
