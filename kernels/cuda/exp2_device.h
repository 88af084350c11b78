// SPDX-License-Identifier: Apache-2.0
// exp2_not_positive and sigmoid on a GPU: docs/arithmetic.md sections 4 and 8, to the bit. Products
// and sums are spelt out, for nvcc would fuse them.
#pragma once
#include "kernels/cpu/exp2.h"
#include "kernels/cuda/portable.h"

namespace cohort::cuda {

GPU_FN float exp2_of(float x) {
  constexpr float c0 = kExpPoly[0], c1 = kExpPoly[1], c2 = kExpPoly[2], c3 = kExpPoly[3];
  constexpr float c4 = kExpPoly[4], c5 = kExpPoly[5], c6 = kExpPoly[6];
  const float shifted = __fadd_rn(x, kExpShift), f = __fsub_rn(x, __fsub_rn(shifted, kExpShift));
  float y = __fmaf_rn(c0, f, c1);
  y = __fmaf_rn(y, f, c2);
  y = __fmaf_rn(y, f, c3);
  y = __fmaf_rn(y, f, c4);
  y = __fmaf_rn(y, f, c5);
  y = __fmaf_rn(y, f, c6);
  const float power = __uint_as_float(__float_as_uint(shifted) << 23);
  return x < kExpLowest ? 0 : __fmul_rn(y, power);
}

GPU_FN float sigmoid_of(float x) {
  const float e = exp2_of(__fmul_rn(-fabsf(x), kLog2e));
  return __fdiv_rn(x < 0 ? e : 1.0f, __fadd_rn(1.0f, e));
}

}  // namespace cohort::cuda
