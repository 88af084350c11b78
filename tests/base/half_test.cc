// SPDX-License-Identifier: Apache-2.0
// Against the definition of the formats, for all 65536 values; rounding at every boundary between
// two neighbours.
#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace cohort {
namespace {

// IEEE 754 binary formats with `fraction` bits of fraction and an exponent bias.
double value_of(uint16_t bits, int fraction, int bias) {
  const int exponent_bits = 15 - fraction;
  const int exponent = bits >> fraction & ((1 << exponent_bits) - 1);
  const int significand = bits & ((1 << fraction) - 1);
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1)
    return significand ? std::numeric_limits<double>::quiet_NaN()
                       : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(significand, 1 - bias - fraction);
  return sign * std::ldexp(significand + (1 << fraction), exponent - bias - fraction);
}

struct Format {
  const char* name;
  int fraction, bias;
  uint16_t largest;  // finite
  float (*to_float)(uint16_t);
  uint16_t (*from_float)(float);
};

class HalfTest : public ::testing::TestWithParam<Format> {};

TEST_P(HalfTest, EveryValueConvertsExactlyAndBack) {
  const Format& format = GetParam();
  for (int i = 0; i < 65536; i++) {
    const auto bits = uint16_t(i);
    const double expected = value_of(bits, format.fraction, format.bias);
    const float value = format.to_float(bits);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_TRUE(std::isnan(format.to_float(format.from_float(value)))) << bits;
      continue;
    }
    EXPECT_EQ(double(value), expected) << bits;
    EXPECT_EQ(std::signbit(value), bits >= 0x8000) << bits;
    EXPECT_EQ(format.from_float(value), bits);
  }
}

TEST_P(HalfTest, RoundsToNearestEvenAtEveryBoundary) {
  const Format& format = GetParam();
  const float infinity = std::numeric_limits<float>::infinity();
  for (int i = 0; i < format.largest; i++) {
    const auto low = uint16_t(i), high = uint16_t(i + 1), even = uint16_t(i % 2 ? i + 1 : i);
    const double middle = (value_of(low, format.fraction, format.bias) +
                           value_of(high, format.fraction, format.bias)) /
                          2;
    const auto exact = float(middle);
    if (double(exact) != middle) continue;  // below the smallest f32 (bf16 denormals)
    EXPECT_EQ(format.from_float(exact), even) << i;
    EXPECT_EQ(format.from_float(std::nextafter(exact, 0.0f)), low) << i;
    EXPECT_EQ(format.from_float(std::nextafter(exact, infinity)), high) << i;
    EXPECT_EQ(format.from_float(-exact), even | 0x8000) << i;
  }
}

TEST_P(HalfTest, OverflowsToInfinityHalfwayAboveTheLargest) {
  const Format& format = GetParam();
  const auto infinity = uint16_t(format.largest + 1);
  // Where the next value would lie, if there was one.
  const double largest = value_of(format.largest, format.fraction, format.bias);
  const double step =
      largest - value_of(uint16_t(format.largest - 1), format.fraction, format.bias);
  const auto middle = float(largest + step / 2);
  ASSERT_EQ(double(middle), largest + step / 2);
  EXPECT_EQ(format.from_float(std::nextafter(middle, 0.0f)), format.largest);
  EXPECT_EQ(format.from_float(middle), infinity);
  EXPECT_EQ(format.from_float(std::numeric_limits<float>::max()), infinity);
  EXPECT_EQ(format.from_float(-std::numeric_limits<float>::infinity()), infinity | 0x8000);
}

INSTANTIATE_TEST_SUITE_P(
    Formats, HalfTest,
    ::testing::Values(Format{"f16", 10, 15, 0x7bff, half_to_float, float_to_half},
                      Format{"bf16", 7, 127, 0x7f7f, bf16_to_float, float_to_bf16}),
    [](const auto& info) { return info.param.name; });

TEST(Half, SmallestValuesRoundToZeroOrTheSmallest) {
  EXPECT_EQ(float_to_half(0x1p-25f), 0);  // tie, zero is even
  EXPECT_EQ(float_to_half(std::nextafter(0x1p-25f, 1.0f)), 1);
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(float_to_half(-0.0f), 0x8000);
}

}  // namespace
}  // namespace cohort
