// SPDX-License-Identifier: Apache-2.0
// What portable.h means under nvcc. Each wrapper is one PTX instruction of sm_80;
// tests/cuda_emulation holds its twin of the same name.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#define GPU_SHARED(T, name, dims) __shared__ T name dims

namespace gpu {
// Aligned to 128 bytes. Its size is the `smem` of launch.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char gpu_dynamic_shared_raw[];
  return reinterpret_cast<T*>(gpu_dynamic_shared_raw);
}

// Once per kernel and device, before launches with more than 48 KiB of dynamic shared memory.
template <class... P>
[[nodiscard]] cudaError_t allow_shared(void (*kernel)(P...), std::size_t bytes) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                              cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}

template <class... P, class... A>
[[nodiscard]] cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t smem,
                                 cudaStream_t stream, A&&... args) {
  static_assert((std::size_t{0} + ... + sizeof(P)) <= 4096, "kernel arguments end at 4 KiB");
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = smem;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...);
}

// `threads` (a multiple of 32) of a block meet at barrier `id`, 1 to 15; 0 is __syncthreads.
__device__ __forceinline__ void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ uint4 load_stream(const uint4* p) {
  uint4 v;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(p));
  return v;
}

// 2^x; error below 2 ulp, denormals are zero.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// 16 bytes from global to shared memory, both aligned to 16; zeros without `pred`. They are there
// for the issuing thread after cp_async_wait, for others after a barrier behind that.
__device__ __forceinline__ void cp_async16(void* shared, const void* global, bool pred = true) {
  const int bytes = pred ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(global), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most N of this thread's groups are on their way.
template <int N>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// 8x8 matrices of 16-bit elements; lane 8 * m + i gives the address (aligned to 16) of row i of
// matrix m. r[m] holds elements (t / 4, 2 * (t % 4)) and the next of matrix m, for lane t; of its
// transpose with _trans.
#define GPU_LDMATRIX_X4(name, trans)                                                      \
  __device__ __forceinline__ void name(std::uint32_t(&r)[4], const void* row) {           \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" trans ".shared.b16 {%0,%1,%2,%3}, [%4];" \
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])                         \
                 : "r"(shared_address(row))                                               \
                 : "memory");                                                             \
  }
#define GPU_LDMATRIX_X2(name, trans)                                                \
  __device__ __forceinline__ void name(std::uint32_t(&r)[2], const void* row) {     \
    asm volatile("ldmatrix.sync.aligned.m8n8.x2" trans ".shared.b16 {%0,%1}, [%2];" \
                 : "=r"(r[0]), "=r"(r[1])                                           \
                 : "r"(shared_address(row))                                         \
                 : "memory");                                                       \
  }
GPU_LDMATRIX_X4(ldmatrix_x4, "")
GPU_LDMATRIX_X4(ldmatrix_x4_trans, ".trans")
GPU_LDMATRIX_X2(ldmatrix_x2, "")
GPU_LDMATRIX_X2(ldmatrix_x2_trans, ".trans")
#undef GPU_LDMATRIX_X4
#undef GPU_LDMATRIX_X2

// d += a b, a of 16 rows, b of 8 columns, k = 16 (bf16, f16) or 32 (s8). The fragments are those of
// PTX ISA, "Matrix Fragments for mma.m16n8k16" and "... k32". All lanes of a warp take part.
#define GPU_MMA(name, D, constraint, shape)                                                      \
  __device__ __forceinline__ void name(D(&d)[4], const std::uint32_t(&a)[4],                     \
                                       const std::uint32_t(&b)[2]) {                             \
    asm volatile(                                                                                \
        "mma.sync.aligned." shape " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"       \
        : "+" constraint(d[0]), "+" constraint(d[1]), "+" constraint(d[2]), "+" constraint(d[3]) \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                     \
  }
GPU_MMA(mma_m16n8k16_bf16, float, "f", "m16n8k16.row.col.f32.bf16.bf16.f32")
GPU_MMA(mma_m16n8k16_f16, float, "f", "m16n8k16.row.col.f32.f16.f16.f32")
GPU_MMA(mma_m16n8k32_s8, std::int32_t, "r", "m16n8k32.row.col.s32.s8.s8.s32")
#undef GPU_MMA
}  // namespace gpu
