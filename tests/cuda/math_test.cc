// SPDX-License-Identifier: Apache-2.0
// Conversions of portable.h and arithmetic of the emulated device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cuda/portable.h"

namespace cohort {
namespace {
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <class T>
float rounded(float x) {
  return gpu::to_float(gpu::from_float<T>(x));
}

// The nearest value of a format with `bits` of fraction, ties to even, by arithmetic alone.
// min_exponent is that of the smallest normal number.
double nearest(double x, int bits, int min_exponent) {
  if (x == 0) return x;
  int exponent = 0;
  std::frexp(x, &exponent);
  const int unit = std::max(exponent - 1, min_exponent) - bits;
  return std::ldexp(std::nearbyint(std::ldexp(x, -unit)), unit);
}

// Numbers of all sizes, ties among them.
std::vector<float> samples() {
  std::vector<float> v{0, -0.0f, 1, -1, 0.1f, 448, 65504, 1e-8f, 6e-8f, 3e-5f, 0.001953125f};
  for (int e = -30; e < 18; ++e)
    for (int i = 0; i < 64; ++i) {
      const float x = std::ldexp(1.0f + static_cast<float>(i) / 64.0f, e);
      v.insert(v.end(), {x, -x, std::nextafter(x, kInf), std::nextafter(x, 0.0f)});
    }
  return v;
}

// IEEE 754 binary16; finite values are held within +-65504 (docs/arithmetic.md).
TEST(ConversionTest, F16RoundsToNearestAndSaturates) {
  for (const float x : samples()) {
    const double expected = std::min(std::max(nearest(x, 10, -14), -65504.0), 65504.0);
    EXPECT_EQ(rounded<__half>(x), expected) << x;
  }
  EXPECT_EQ(rounded<__half>(1e30f), 65504.0f);
  EXPECT_EQ(rounded<__half>(-std::numeric_limits<float>::max()), -65504.0f);
  EXPECT_EQ(rounded<__half>(65520), 65504.0f);
  EXPECT_EQ(rounded<__half>(-kInf), -kInf);
  EXPECT_TRUE(std::isnan(rounded<__half>(kNan)));
}

TEST(ConversionTest, Bf16RoundsToNearest) {
  for (const float x : samples()) EXPECT_EQ(rounded<__nv_bfloat16>(x), nearest(x, 7, -126)) << x;
  EXPECT_EQ(rounded<__nv_bfloat16>(kInf), kInf);
  EXPECT_TRUE(std::isnan(rounded<__nv_bfloat16>(kNan)));
}

// OCP 8-bit Floating Point Specification, E4M3: 3 bits of fraction, smallest normal 2^-6, largest
// 448, no infinity.
TEST(ConversionTest, E4m3RoundsToNearestAndSaturates) {
  for (const float x : samples()) {
    const double expected = std::min(std::max(nearest(x, 3, -6), -448.0), 448.0);
    EXPECT_EQ(rounded<__nv_fp8_e4m3>(x), expected) << x;
  }
  EXPECT_EQ(rounded<__nv_fp8_e4m3>(kInf), 448.0f);
  EXPECT_EQ(rounded<__nv_fp8_e4m3>(-kInf), -448.0f);
  EXPECT_EQ(rounded<__nv_fp8_e4m3>(464), 448.0f);
  EXPECT_TRUE(std::isnan(rounded<__nv_fp8_e4m3>(kNan)));
}

template <class T>
void check_pairs(std::size_t bytes_of_pair) {
  for (const auto& [low, high] : {std::pair{1.5f, -2.0f}, {0.1f, 1e6f}, {kNan, -0.0f}}) {
    const std::uint32_t packed = gpu::pack2<T>(low, high);
    const T values[2] = {gpu::from_float<T>(low), gpu::from_float<T>(high)};
    std::uint32_t expected = 0;
    std::memcpy(&expected, values, bytes_of_pair);
    const float2 back = gpu::unpack2<T>(packed);
    if (std::isnan(low)) {
      EXPECT_TRUE(std::isnan(back.x));
    } else {
      EXPECT_EQ(packed, expected);
      EXPECT_EQ(back.x, rounded<T>(low));
    }
    EXPECT_EQ(back.y, rounded<T>(high));
  }
}

TEST(ConversionTest, PairsLieAsInMemory) {
  check_pairs<__half>(4);
  check_pairs<__nv_bfloat16>(4);
  check_pairs<__nv_fp8_e4m3>(2);
}

// CUDA Math API, "Integer Intrinsics".
TEST(IntegerTest, Bits) {
  EXPECT_EQ(__popc(0xf0f0u), 8);
  EXPECT_EQ(__popcll(~0ull), 64);
  EXPECT_EQ(__clz(0), 32);
  EXPECT_EQ(__clz(1), 31);
  EXPECT_EQ(__clzll(1ll << 40), 23);
  EXPECT_EQ(__ffs(0), 0);
  EXPECT_EQ(__ffs(8), 4);
  EXPECT_EQ(__ffsll(1ll << 40), 41);
  EXPECT_EQ(__brev(1u), 0x80000000u);
  EXPECT_EQ(__brev(0x0000f0a0u), 0x050f0000u);
  EXPECT_EQ(__umulhi(0x80000000u, 6), 3u);
  EXPECT_EQ(__mulhi(-0x40000000, 8), -2);
  EXPECT_EQ(__umul64hi(1ull << 63, 6), 3ull);
  EXPECT_EQ(__byte_perm(0x33221100u, 0x77665544u, 0x7410u), 0x77441100u);
  EXPECT_EQ(__byte_perm(0x00008000u, 0, 0x0099u), 0x0000ffffu);
}

TEST(IntegerTest, Dp4a) {
  EXPECT_EQ(__dp4a(0x01ff807f, 0x02030405, 1), 1 + 127 * 5 + -128 * 4 + -1 * 3 + 1 * 2);
  EXPECT_EQ(__dp4a(0xff00ff01u, 0x02030405u, 1u), 1 + 5u + 255 * 4 + 255 * 2);
}

// CUDA Math API, "Type Casting Intrinsics"; PTX ISA, "cvt": integers saturate, NaN becomes 0.
TEST(CastTest, FloatToInt) {
  EXPECT_EQ(__float2int_rn(2.5f), 2);
  EXPECT_EQ(__float2int_rn(-3.5f), -4);
  EXPECT_EQ(__float2int_rz(-3.9f), -3);
  EXPECT_EQ(__float2int_rd(-3.1f), -4);
  EXPECT_EQ(__float2int_ru(3.1f), 4);
  EXPECT_EQ(__float2int_rn(1e20f), std::numeric_limits<int>::max());
  EXPECT_EQ(__float2int_rn(-1e20f), std::numeric_limits<int>::min());
  EXPECT_EQ(__float2int_rn(kNan), 0);
  EXPECT_EQ(__float2uint_rn(-1.0f), 0u);
  EXPECT_EQ(__float_as_uint(1.0f), 0x3f800000u);
  EXPECT_EQ(__uint_as_float(0x7f800000u), kInf);
}

// CUDA Math API: min and max are overloaded for all pairs; of a number and a NaN, the number.
TEST(MinMaxTest, AsCudaOverloadsThem) {
  EXPECT_EQ(min(3, -2), -2);
  EXPECT_EQ(max(3u, 4u), 4u);
  EXPECT_EQ(max(-1, 4u), 0xffffffffu);
  EXPECT_EQ(min(5ll, 7), 5ll);
  EXPECT_EQ(max(kNan, 2.0f), 2.0f);
  EXPECT_EQ(min(2.0f, kNan), 2.0f);
  static_assert(std::is_same_v<decltype(max(1.0f, 2.0f)), float>);
  static_assert(std::is_same_v<decltype(max(1, 2ll)), long long>);
}

// CUDA C++ Programming Guide, "Mathematical Functions": rsqrtf is within 2 ulp; PTX ISA, "ex2":
// denormals are flushed with .ftz.
TEST(ApproximationTest, StaysWithinTheDocumentedError) {
  for (float x = 1e-3f; x < 1e3f; x *= 1.37f) {
    EXPECT_NEAR(rsqrtf(x) * std::sqrt(double{x}), 1.0, 2.4e-7);
    EXPECT_NEAR(gpu::exp2_approx(-x) * std::exp2(double{x}), x < 126 ? 1.0 : 0.0, 2.4e-7);
  }
  EXPECT_EQ(gpu::exp2_approx(-kInf), 0.0f);
  EXPECT_EQ(gpu::exp2_approx(-127.0f), 0.0f);
  EXPECT_EQ(gpu::exp2_approx(kInf), kInf);
  EXPECT_TRUE(std::isnan(gpu::exp2_approx(kNan)));
  EXPECT_EQ(__fmaf_rn(1 + 0x1p-12f, 1 + 0x1p-12f, -1), 0x1p-11f + 0x1p-24f);
}
}  // namespace
}  // namespace cohort
