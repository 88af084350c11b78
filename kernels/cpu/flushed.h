// SPDX-License-Identifier: Apache-2.0
// Arithmetic of f32 without denormals, by hand: what FTZ and DAZ make of it (docs/arithmetic.md
// section 9). Only for portable units.
#pragma once
#include <cmath>

namespace cohort {

constexpr float kLeastNormal = 0x1p-126f;

// A denormal becomes a zero of its sign.
inline float flushed(float x) { return std::fabs(x) < kLeastNormal ? std::copysign(0.0f, x) : x; }

// fma of normal numbers and zeros, a and b being bf16. It is tiny where it would be below 2^-126
// had it an exponent for that: so 2^-126 - 2^-150 is, though its nearest float that may be denormal
// is 2^-126.
inline float flushed_fma(float a, float b, float c) {
  const float sum = std::fma(a, b, c);
  if (std::fabs(sum) > kLeastNormal) return sum;
  // Exact in double where it matters: the product has 16 bits, and c is near its negative or 0.
  const double exact = double(a) * double(b) + double(c);
  return std::fabs(exact) < 0x1p-126 - 0x1p-151 ? std::copysign(0.0f, sum) : sum;
}

// A denormal sum of two floats is exact, so that it does not matter when it is looked at.
inline float flushed_sum(float a, float b) { return flushed(a + b); }

}  // namespace cohort
