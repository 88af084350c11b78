// SPDX-License-Identifier: Apache-2.0
// How the element-wise kernels read and write memory: runs of kN elements as floats. kN is 8 with
// accesses of 16 bytes, which the run must be aligned to, or 1 for any width. Host side: from a
// tensor's type to a kernel's.
#pragma once
#include <cstdint>

#include "base/check.h"
#include "base/dtype.h"
#include "kernels/cuda/portable.h"

namespace cohort::cuda {

inline constexpr int kRun = 8;  // elements of a wide run

// ---- device ----

// 16 bytes of f32, and of types of 2 bytes.
GPU_FN void load4_floats(const float* p, float* v) {
  const auto x = gpu::load16<float4>(p);
  v[0] = x.x;
  v[1] = x.y;
  v[2] = x.z;
  v[3] = x.w;
}
GPU_FN void store4_floats(float* p, const float* v) {
  gpu::store16(p, make_float4(v[0], v[1], v[2], v[3]));
}

template <class T>
struct Words {  // of 8 elements
  static_assert(sizeof(T) <= 2);
  static GPU_FN void load(const T* p, float* v) {
    static_assert(sizeof(T) == 2);
    const auto x = gpu::load16<uint4>(p);
    const std::uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float2 two = gpu::unpack2<T>(words[i]);
      v[2 * i] = two.x;
      v[2 * i + 1] = two.y;
    }
  }
  static GPU_FN void store(T* p, const float* v) {
    std::uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 4; i++) w[i] = gpu::pack2<T>(v[2 * i], v[2 * i + 1]);
    if constexpr (sizeof(T) == 2)
      gpu::store16(p, make_uint4(w[0], w[1], w[2], w[3]));
    else
      gpu::store8(p, make_uint2(w[0] | w[1] << 16, w[2] | w[3] << 16));
  }
};
template <>
struct Words<float> {
  static GPU_FN void load(const float* p, float* v) {
    load4_floats(p, v);
    load4_floats(p + 4, v + 4);
  }
  static GPU_FN void store(float* p, const float* v) {
    store4_floats(p, v);
    store4_floats(p + 4, v + 4);
  }
};

template <int kN, class T>
GPU_FN void load_run(const T* p, float* v) {
  static_assert(kN == 1 || kN == kRun);
  if constexpr (kN == 1)
    v[0] = gpu::to_float(*p);
  else
    Words<T>::load(p, v);
}
template <int kN, class T>
GPU_FN void store_run(T* p, const float* v) {
  static_assert(kN == 1 || kN == kRun);
  if constexpr (kN == 1)
    *p = gpu::from_float<T>(v[0]);
  else
    Words<T>::store(p, v);
}

GPU_FN bool is_finite(float x) { return fabsf(x) <= 3.402823466e38f; }

// ---- host ----

inline unsigned divide_up(int64_t n, int64_t by) {
  return static_cast<unsigned>((n + by - 1) / by);
}
// Threads of a block for so many pieces of work: whole warps, `most` of them at most.
inline unsigned threads_for(int64_t pieces, unsigned most) {
  const unsigned whole = divide_up(pieces < most ? pieces : int64_t(most), 32) * 32;
  return whole < 32 ? 32 : whole;
}
inline bool is_wide(int64_t width) { return width % kRun == 0; }

// f(null pointer of the type) for f32, f16 and bf16.
template <class F>
void for_float_type(DType type, F f) {
  switch (type) {
    case DType::f32:
      return f(static_cast<float*>(nullptr));
    case DType::f16:
      return f(static_cast<__half*>(nullptr));
    case DType::bf16:
      return f(static_cast<__nv_bfloat16*>(nullptr));
    default:
      COHORT_CHECK_MSG(false, concat("no kernel for elements of type ", name(type)));
  }
}

}  // namespace cohort::cuda
