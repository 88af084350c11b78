// SPDX-License-Identifier: Apache-2.0
// A tile unit made of doubles: bf16 arithmetic (docs/arithmetic.md section 9) by another way than
// the kernels'.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace cohort::tile_unit {

// x with so many significant bits, whatever its exponent, ties to even.
inline double to_bits(double x, int bits) {
  int exponent;
  const double fraction = std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, bits)), exponent - bits);
}

// As f32, tiny results being zeros.
inline float narrowed(double x) {
  if (!std::isfinite(x) || x == 0) return float(x);
  const double rounded = to_bits(x, 24);
  if (std::fabs(rounded) < 0x1p-126) return std::copysign(0.0f, float(x));
  return std::fabs(rounded) >= 0x1p128
             ? std::copysign(std::numeric_limits<float>::infinity(), float(x))
             : float(rounded);
}

// a + b of doubles with one rounding to f32. What the double sum cannot hold makes its last bit
// odd, which decides ties (S. Boldo, G. Melquiond: Emulation of FMA and correctly rounded sums).
inline float added(double a, double b) {
  double sum = a + b;
  if (!std::isfinite(sum)) return float(sum);
  const double second = sum - a, error = (a - (sum - second)) + (b - second);
  if (error != 0) {
    if ((error > 0) != (sum > 0)) sum = std::nextafter(sum, 0);
    uint64_t bits;
    std::memcpy(&bits, &sum, 8);
    bits |= 1;
    std::memcpy(&sum, &bits, 8);
  }
  return narrowed(sum);
}

inline float without_denormals(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
}

// Denormals of bf16 are multiples of 2^-133.
inline float rounded_to_bf16(float x) {
  if (!std::isfinite(x) || x == 0) return x;
  const bool small = std::fabs(x) < 0x1p-126f;
  const double near =
      small ? std::ldexp(std::nearbyint(std::ldexp(double(x), 133)), -133) : to_bits(double(x), 8);
  if (std::fabs(near) >= 0x1p128) return std::copysign(std::numeric_limits<float>::infinity(), x);
  return without_denormals(float(near));
}

inline float tile_sum(const float* w, const float* x, int64_t columns) {
  float acc = 0;
  for (int64_t block = 0; block < columns; block += 32) {
    float chains[2] = {};
    for (int64_t k = block; k < std::min(block + 32, columns); k++)
      chains[k % 2] = added(double(without_denormals(w[k])) * double(rounded_to_bf16(x[k])),
                            double(chains[k % 2]));
    acc = added(double(acc), double(added(double(chains[0]), double(chains[1]))));
  }
  return acc;
}

}  // namespace cohort::tile_unit
