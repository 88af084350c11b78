// SPDX-License-Identifier: Apache-2.0
// f32 to bf16, nearest even, in integers, so that no mode of the processor matters. Included by one
// unit per instruction set, whose compiler makes vectors of the loop.
#pragma once
#include <cstdint>

namespace cohort {
namespace {

// A NaN stays one; a denormal result becomes a zero of its sign.
__attribute__((always_inline)) inline float rounded_to_bf16(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  const uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1), quiet = bits | 0x400000u;
  uint32_t out = ((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded) & 0xffff0000u;
  out &= (out & 0x7f800000u) == 0 ? 0x80000000u : 0xffffffffu;
  __builtin_memcpy(&x, &out, 4);
  return x;
}

// wide: the rounded values as f32.
__attribute__((always_inline)) inline void round_to_bf16(const float* __restrict x, int64_t n,
                                                         float* __restrict wide,
                                                         uint16_t* __restrict narrow) {
  for (int64_t i = 0; i < n; i++) {
    const float rounded = rounded_to_bf16(x[i]);
    uint32_t bits;
    __builtin_memcpy(&bits, &rounded, 4);
    wide[i] = rounded;
    narrow[i] = uint16_t(bits >> 16);
  }
}

}  // namespace
}  // namespace cohort
