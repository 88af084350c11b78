// SPDX-License-Identifier: Apache-2.0
// 2^x for x <= 0 in one fixed arithmetic (docs/arithmetic.md section 4), and its constants for the
// vector units. Largest relative error 8.0e-8.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

namespace cohort {

constexpr float kLog2e = 0x1.715476p+0f;
constexpr float kExpLowest = -64;  // below this the result is +0: no denormals arise
// Adding it rounds to an integer n and leaves the exponent of 2^n in the low bits.
constexpr float kExpShift = 0x1.8p23f + 127;
// Highest power first; the value at 0 is 1. Relative minimax on [-1/2, 1/2].
constexpr float kExpPoly[] = {0x1.41fbbcp-13f,
                              0x1.5f3e52p-10f,
                              0x1.3b2d4cp-7f,
                              0x1.c6aee8p-5f,
                              0x1.ebfbdcp-3f,
                              0x1.62e43p-1f,
                              1};

[[maybe_unused]] static float exp2_not_positive(float x) {
  if (x < kExpLowest) return 0;
  const float shifted = x + kExpShift, f = x - (shifted - kExpShift);
  float y = kExpPoly[0];
  for (int i = 1; i < 7; i++) y = __builtin_fmaf(y, f, kExpPoly[i]);
  uint32_t bits;
  std::memcpy(&bits, &shifted, 4);
  bits <<= 23;
  float power;
  std::memcpy(&power, &bits, 4);
  return y * power;
}

}  // namespace cohort
