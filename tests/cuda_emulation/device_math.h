// SPDX-License-Identifier: Apache-2.0
// Arithmetic of the device language on a CPU. The functions that CUDA rounds correctly are exact
// twins; rsqrtf, __expf and their like are at least as exact as on a GPU (CUDA C++ Programming
// Guide, "Mathematical Functions"), so tests of kernels need tolerances there.
#pragma once
#include <math.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

// ---- the bits of numbers ----
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }

// ---- integers ----
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline int __ffsll(long long x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(x)) + 1;
}
inline unsigned __brev(unsigned x) {
  unsigned r = 0;
  for (int i = 0; i < 32; ++i) r |= (x >> i & 1u) << (31 - i);
  return r;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((std::uint64_t{a} * b) >> 32);
}
inline int __mulhi(int a, int b) { return static_cast<int>((std::int64_t{a} * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}
// Byte i of the result is byte (s >> 4 i) & 7 of y:x; bit 3 of a selector repeats its sign.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
  const std::uint64_t bytes = std::uint64_t{y} << 32 | x;
  unsigned r = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned selector = s >> (4 * i);
    unsigned byte = static_cast<unsigned>(bytes >> (8 * (selector & 7))) & 0xffu;
    if (selector & 8) byte = byte & 0x80u ? 0xffu : 0;
    r |= byte << (8 * i);
  }
  return r;
}
inline int __dp4a(int a, int b, int c) {
  std::uint32_t sum = static_cast<std::uint32_t>(c);
  for (int i = 0; i < 4; ++i) {
    const int product = static_cast<std::int8_t>(static_cast<std::uint32_t>(a) >> (8 * i)) *
                        static_cast<std::int8_t>(static_cast<std::uint32_t>(b) >> (8 * i));
    sum += static_cast<std::uint32_t>(product);
  }
  return static_cast<int>(sum);
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 4; ++i) c += (a >> (8 * i) & 0xffu) * (b >> (8 * i) & 0xffu);
  return c;
}

// ---- rounded as named ----
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline double __dsqrt_rn(double x) { return std::sqrt(x); }

// ---- conversions: to integers they saturate, and NaN becomes 0 ----
namespace emu {
template <class I>
I to_integer(double rounded) {
  if (std::isnan(rounded)) return 0;
  if (rounded < static_cast<double>(std::numeric_limits<I>::min()))
    return std::numeric_limits<I>::min();
  if (rounded > static_cast<double>(std::numeric_limits<I>::max()))
    return std::numeric_limits<I>::max();
  return static_cast<I>(rounded);
}
}  // namespace emu
inline int __float2int_rn(float x) { return emu::to_integer<int>(std::nearbyint(x)); }
inline int __float2int_rz(float x) { return emu::to_integer<int>(std::trunc(x)); }
inline int __float2int_rd(float x) { return emu::to_integer<int>(std::floor(x)); }
inline int __float2int_ru(float x) { return emu::to_integer<int>(std::ceil(x)); }
inline unsigned __float2uint_rn(float x) { return emu::to_integer<unsigned>(std::nearbyint(x)); }
inline unsigned __float2uint_rz(float x) { return emu::to_integer<unsigned>(std::trunc(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }
inline double __int2double_rn(int x) { return x; }

// ---- approximate on a GPU ----
inline float rsqrtf(float x) { return static_cast<float>(1.0 / std::sqrt(double{x})); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

// ---- min and max as CUDA overloads them: mixed signs become unsigned, a NaN gives way ----
namespace emu {
template <class A, class B>
using MinMax =
    std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, std::common_type_t<A, B>>;
}  // namespace emu
template <class A, class B>
constexpr emu::MinMax<A, B> min(A a, B b) {
  using T = emu::MinMax<A, B>;
  if constexpr (std::is_floating_point_v<T>)
    return std::fmin(static_cast<T>(a), static_cast<T>(b));
  else
    return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(a) : static_cast<T>(b);
}
template <class A, class B>
constexpr emu::MinMax<A, B> max(A a, B b) {
  using T = emu::MinMax<A, B>;
  if constexpr (std::is_floating_point_v<T>)
    return std::fmax(static_cast<T>(a), static_cast<T>(b));
  else
    return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}

namespace gpu {
// ex2.approx.ftz.f32: denormal inputs and results are zero.
inline float exp2_approx(float x) {
  const float y = std::exp2(x);
  return y < std::numeric_limits<float>::min() ? 0.0f : y;
}
}  // namespace gpu
