// SPDX-License-Identifier: Apache-2.0
// 16-bit floats as bit patterns. Conversions to f32 are exact; from f32 they round to nearest
// even (f16 overflows to infinity; NaN stays NaN). `static` and not `inline`: a copy compiled with
// wider instructions must never be merged into units that lack them.
#pragma once
#include <bit>
#include <cstdint>

namespace cohort {

[[maybe_unused]] static float half_to_float(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000u) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
  if (exponent == 0)  // zero or denormal: fraction * 2^-24 is exact
    return std::bit_cast<float>(std::bit_cast<uint32_t>(float(fraction) * 0x1p-24f) | sign);
  return std::bit_cast<float>(sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) |
                              fraction << 13);
}

[[maybe_unused]] static uint16_t float_to_half(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f), sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u);  // rounds above 65504
  if (magnitude < 0x38800000u) {                                  // below 2^-14: denormal result
    // Adding 0.5 aligns the value to multiples of 2^-24, where the hardware rounds for us.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return uint16_t(sign | (std::bit_cast<uint32_t>(aligned) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1);
  return uint16_t(sign | ((rounded - 0x38000000u) >> 13));
}

[[maybe_unused]] static float bf16_to_float(uint16_t b) {
  return std::bit_cast<float>(uint32_t(b) << 16);
}

[[maybe_unused]] static uint16_t float_to_bf16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return uint16_t(bits >> 16 | 0x40u);
  return uint16_t((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

}  // namespace cohort
