// SPDX-License-Identifier: Apache-2.0
// The only header a kernel file includes. Under nvcc it is CUDA with thin PTX wrappers (ptx.h);
// under a host compiler it is the test emulation. Kernels never write <<<>>>, extern __shared__ or
// asm themselves: everything a host compiler cannot parse is wrapped here.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#include "kernels/cuda/ptx.h"
#define GPU_FN __device__ __forceinline__
#else
#include "tests/cuda_emulation/device.h"
#define GPU_FN inline
#endif

namespace gpu {
// One access of sizeof(W) bytes, aligned to them, whatever T looks like. A plain load of a struct
// of __nv_bfloat162 is split by nvcc into 2-byte loads, so kernels must use these (the PTX check
// counts the wide ones).
template <class W, class T>
GPU_FN T value_of(const W& w) {
  static_assert(sizeof(W) == sizeof(T));
  union U {
    W w;
    T t;
    __host__ __device__ U() {}
  } u;
  u.w = w;
  return u.t;
}
template <class W, class T>
GPU_FN T load_as(const void* p) {
  return value_of<W, T>(*static_cast<const W*>(p));
}
template <class W, class T>
GPU_FN void store_as(void* p, const T& t) {
  *static_cast<W*>(p) = value_of<T, W>(t);
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
GPU_FN T load4(const void* p) {
  return load_as<std::uint32_t, T>(p);
}
template <class T>
GPU_FN void store16(void* p, const T& t) {
  store_as<uint4>(p, t);
}
template <class T>
GPU_FN void store8(void* p, const T& t) {
  store_as<uint2>(p, t);
}
template <class T>
GPU_FN void store4(void* p, const T& t) {
  store_as<std::uint32_t>(p, t);
}
// For weights, which a kernel reads once: past L1. Nothing may write the bytes while the kernel
// runs.
template <class T>
GPU_FN T load16_stream(const void* p) {
  return value_of<uint4, T>(load_stream(static_cast<const uint4*>(p)));
}

// Widening is exact.
GPU_FN float to_float(float x) { return x; }
GPU_FN float to_float(__half x) { return __half2float(x); }
GPU_FN float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
GPU_FN float to_float(__nv_fp8_e4m3 x) { return static_cast<float>(x); }

// f16 keeps NaN and infinity and holds finite values within +-65504 (docs/arithmetic.md).
GPU_FN float within_f16(float x) {
  constexpr float kMax = 65504.0f;
  const float a = fabsf(x);
  return a > kMax && a <= 3.402823466e38f ? copysignf(kMax, x) : x;
}

// Rounds to nearest, ties to even. e4m3 has no infinity: everything past +-448 becomes +-448 and
// NaN stays NaN.
template <class T>
GPU_FN T from_float(float x);
template <>
GPU_FN float from_float<float>(float x) {
  return x;
}
template <>
GPU_FN __half from_float<__half>(float x) {
  return __float2half_rn(within_f16(x));
}
template <>
GPU_FN __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
GPU_FN __nv_fp8_e4m3 from_float<__nv_fp8_e4m3>(float x) {
  return value_of<__nv_fp8_storage_t, __nv_fp8_e4m3>(
      __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3));
}

// Two values as they lie in memory, `low` first; two e4m3 fill the low 16 bits. Rounding is that
// of from_float.
template <class T>
GPU_FN std::uint32_t pack2(float low, float high);
template <>
GPU_FN std::uint32_t pack2<__half>(float low, float high) {
  return value_of<__half2, std::uint32_t>(__floats2half2_rn(within_f16(low), within_f16(high)));
}
template <>
GPU_FN std::uint32_t pack2<__nv_bfloat16>(float low, float high) {
  return value_of<__nv_bfloat162, std::uint32_t>(__floats2bfloat162_rn(low, high));
}
template <>
GPU_FN std::uint32_t pack2<__nv_fp8_e4m3>(float low, float high) {
  return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
}
template <class T>
GPU_FN float2 unpack2(std::uint32_t v);
template <>
GPU_FN float2 unpack2<__half>(std::uint32_t v) {
  return __half22float2(value_of<std::uint32_t, __half2>(v));
}
template <>
GPU_FN float2 unpack2<__nv_bfloat16>(std::uint32_t v) {
  return make_float2(__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000u));
}
template <>
GPU_FN float2 unpack2<__nv_fp8_e4m3>(std::uint32_t v) {
  const auto pair = static_cast<__nv_fp8x2_storage_t>(v);
  return __half22float2(
      value_of<__half2_raw, __half2>(__nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3)));
}
}  // namespace gpu
