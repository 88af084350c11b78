// SPDX-License-Identifier: Apache-2.0
// ldmatrix and mma against plain matrix products. The fragments here are typed from the tables of
// PTX ISA 8.x, "Matrix Fragments for mma.m16n8k16 with floating point type", "... for
// mma.m16n8k32" (row and column of element i of a lane) and "ldmatrix", element by element, while
// the emulation works register by register.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tests/cuda/run_kernel.h"

namespace cohort {
namespace {
using testing::HasSubstr;

struct At {
  int row, column;
};

// PTX ISA, m16n8k16: groupID = laneid >> 2, threadID_in_group = laneid % 4.
At a_element_16(int lane, int i) {
  const int group = lane >> 2, thread = lane % 4;
  const bool upper = (i >= 0 && i < 2) || (i >= 4 && i < 6);
  return {upper ? group : group + 8, i < 4 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8};
}
At b_element_16(int lane, int i) {
  const int group = lane >> 2, thread = lane % 4;
  return {i < 2 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8, group};
}
// PTX ISA, m16n8k32 with .s8.
At a_element_32(int lane, int i) {
  const int group = lane >> 2, thread = lane % 4;
  const bool upper = (i >= 0 && i < 4) || (i >= 8 && i < 12);
  return {upper ? group : group + 8, i < 8 ? thread * 4 + (i & 3) : thread * 4 + (i & 3) + 16};
}
At b_element_32(int lane, int i) {
  const int group = lane >> 2, thread = lane % 4;
  return {i < 4 ? thread * 4 + (i & 3) : thread * 4 + (i & 3) + 16, group};
}
// Both shapes.
At c_element(int lane, int i) {
  const int group = lane >> 2, thread = lane % 4;
  return {i < 2 ? group : group + 8, thread * 2 + (i & 1)};
}

template <class T, class Sum, int Depth>
struct Product {
  std::vector<T> a = std::vector<T>(16 * Depth), b = std::vector<T>(Depth * 8);
  std::vector<Sum> c = std::vector<Sum>(16 * 8), d = std::vector<Sum>(16 * 8);
};

template <class T, class Sum, int Depth, class Mma>
void multiply(Product<T, Sum, Depth>& p, At (*a_at)(int, int), At (*b_at)(int, int), Mma mma) {
  run_kernel(1, 32, 0, [&] {
    const int lane = static_cast<int>(threadIdx.x);
    constexpr int kPerRegister = 4 / sizeof(T);
    T a_values[4 * kPerRegister], b_values[2 * kPerRegister];
    for (int i = 0; i < 4 * kPerRegister; ++i)
      a_values[i] = p.a[a_at(lane, i).row * Depth + a_at(lane, i).column];
    for (int i = 0; i < 2 * kPerRegister; ++i)
      b_values[i] = p.b[b_at(lane, i).row * 8 + b_at(lane, i).column];
    std::uint32_t a[4], b[2];
    std::memcpy(a, a_values, sizeof a);
    std::memcpy(b, b_values, sizeof b);
    Sum d[4];
    for (int i = 0; i < 4; ++i) d[i] = p.c[c_element(lane, i).row * 8 + c_element(lane, i).column];
    mma(d, a, b);
    for (int i = 0; i < 4; ++i) p.d[c_element(lane, i).row * 8 + c_element(lane, i).column] = d[i];
  });
}

template <class T, class Mma>
void check_floating(Mma mma) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(-2, 2);
  Product<T, float, 16> p;
  for (T& v : p.a) v = gpu::from_float<T>(uniform(random));
  for (T& v : p.b) v = gpu::from_float<T>(uniform(random));
  for (float& v : p.c) v = uniform(random);
  multiply(p, a_element_16, b_element_16, mma);
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column) {
      double sum = p.c[row * 8 + column];
      for (int k = 0; k < 16; ++k)
        sum += double{gpu::to_float(p.a[row * 16 + k])} * gpu::to_float(p.b[k * 8 + column]);
      EXPECT_NEAR(p.d[row * 8 + column], sum, 64 * 1e-6) << row << " " << column;
    }
}

TEST(MmaTest, Bf16IsAMatrixProduct) {
  check_floating<__nv_bfloat16>([](auto& d, auto& a, auto& b) { gpu::mma_m16n8k16_bf16(d, a, b); });
}

TEST(MmaTest, F16IsAMatrixProduct) {
  check_floating<__half>([](auto& d, auto& a, auto& b) { gpu::mma_m16n8k16_f16(d, a, b); });
}

TEST(MmaTest, S8IsAnExactMatrixProduct) {
  std::mt19937 random(8);
  std::uniform_int_distribution<int> uniform(-128, 127);
  Product<std::int8_t, std::int32_t, 32> p;
  for (auto& v : p.a) v = static_cast<std::int8_t>(uniform(random));
  for (auto& v : p.b) v = static_cast<std::int8_t>(uniform(random));
  for (auto& v : p.c) v = uniform(random) * 1000;
  multiply(p, a_element_32, b_element_32,
           [](auto& d, auto& a, auto& b) { gpu::mma_m16n8k32_s8(d, a, b); });
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column) {
      std::int32_t sum = p.c[row * 8 + column];
      for (int k = 0; k < 32; ++k) sum += p.a[row * 32 + k] * p.b[k * 8 + column];
      EXPECT_EQ(p.d[row * 8 + column], sum) << row << " " << column;
    }
}

// PTX ISA, mma: without .satfinite "the accumulated value will wrap around on overflow".
TEST(MmaTest, S8SumsWrap) {
  Product<std::int8_t, std::int32_t, 32> p;
  for (auto& v : p.a) v = 1;
  for (auto& v : p.b) v = 1;
  for (auto& v : p.c) v = 0x7fffffff;
  multiply(p, a_element_32, b_element_32,
           [](auto& d, auto& a, auto& b) { gpu::mma_m16n8k32_s8(d, a, b); });
  EXPECT_EQ(p.d[0], static_cast<std::int32_t>(0x7fffffffu + 32u));
}

TEST(MmaTest, OneNanStaysInItsRowAndColumn) {
  Product<__nv_bfloat16, float, 16> p;
  for (auto& v : p.a) v = gpu::from_float<__nv_bfloat16>(1);
  for (auto& v : p.b) v = gpu::from_float<__nv_bfloat16>(1);
  p.a[5 * 16 + 3] = gpu::from_float<__nv_bfloat16>(NAN);
  multiply(p, a_element_16, b_element_16,
           [](auto& d, auto& a, auto& b) { gpu::mma_m16n8k16_bf16(d, a, b); });
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column)
      EXPECT_EQ(std::isnan(p.d[row * 8 + column]), row == 5) << row << " " << column;
}

TEST(MmaTest, NeedsAWholeWarp) {
  const auto text = mistake_of(1, 16, 0, [] {
    float d[4] = {};
    const std::uint32_t a[4] = {}, b[2] = {};
    gpu::mma_m16n8k16_bf16(d, a, b);
  });
  EXPECT_THAT(text, HasSubstr("needs all lanes of a warp"));
  EXPECT_THAT(text, HasSubstr("mma_test.cc:"));
}

// ---- ldmatrix ----
constexpr int kPitch = 40;  // elements of a row in shared memory: 80 bytes, free of conflicts

// Loads `Matrices` 8x8 matrices that hold 1000 * matrix + 10 * row + column.
template <int Matrices, class Load>
std::vector<std::uint16_t> load_all(Load load) {
  std::vector<std::uint16_t> got(32 * Matrices * 2);
  run_kernel(1, 32, Matrices * 8 * kPitch * 2, [&] {
    auto* shared = gpu::dynamic_shared<std::uint16_t>();
    const int lane = static_cast<int>(threadIdx.x);
    for (int i = lane; i < Matrices * 64; i += 32)
      shared[i / 8 * kPitch + i % 8] =
          static_cast<std::uint16_t>(1000 * (i / 64) + 10 * (i / 8 % 8) + i % 8);
    __syncwarp();
    std::uint32_t r[Matrices];
    load(r, shared + lane % (8 * Matrices) * kPitch);
    for (int m = 0; m < Matrices; ++m) {
      got[(lane * Matrices + m) * 2] = static_cast<std::uint16_t>(r[m] & 0xffff);
      got[(lane * Matrices + m) * 2 + 1] = static_cast<std::uint16_t>(r[m] >> 16);
    }
  });
  return got;
}

// PTX ISA, ldmatrix: "each thread loads a 32-bit register": thread 0 holds elements 0 and 1 of row
// 0, thread 3 elements 6 and 7, thread 4 starts row 1. With .trans "the matrix is loaded in
// column-major format".
template <int Matrices>
void expect_fragments(const std::vector<std::uint16_t>& got, bool transposed) {
  for (int lane = 0; lane < 32; ++lane)
    for (int m = 0; m < Matrices; ++m)
      for (int i = 0; i < 2; ++i) {
        const int row = lane / 4, column = lane % 4 * 2 + i;
        const int expected = 1000 * m + (transposed ? 10 * column + row : 10 * row + column);
        EXPECT_EQ(got[(lane * Matrices + m) * 2 + i], expected) << lane << " " << m << " " << i;
      }
}

TEST(LdmatrixTest, FourMatrices) {
  expect_fragments<4>(load_all<4>([](auto& r, auto* p) { gpu::ldmatrix_x4(r, p); }), false);
}
TEST(LdmatrixTest, FourTransposedMatrices) {
  expect_fragments<4>(load_all<4>([](auto& r, auto* p) { gpu::ldmatrix_x4_trans(r, p); }), true);
}
TEST(LdmatrixTest, TwoMatrices) {
  expect_fragments<2>(load_all<2>([](auto& r, auto* p) { gpu::ldmatrix_x2(r, p); }), false);
}
TEST(LdmatrixTest, TwoTransposedMatrices) {
  expect_fragments<2>(load_all<2>([](auto& r, auto* p) { gpu::ldmatrix_x2_trans(r, p); }), true);
}

// PTX ISA, ldmatrix: for .x2 the addresses of threads 16 to 31 are not used.
TEST(LdmatrixTest, TwoMatricesIgnoreTheUpperAddresses) {
  const auto got = load_all<2>([](auto& r, auto* p) {
    gpu::ldmatrix_x2(r, threadIdx.x < 16 ? static_cast<const void*>(p) : nullptr);
  });
  expect_fragments<2>(got, false);
}

template <class Row>
std::string mistake_of_load(Row row) {
  return mistake_of(1, 32, 1024, [&] {
    std::uint32_t r[4];
    gpu::ldmatrix_x4(r, row(gpu::dynamic_shared<char>()));
  });
}

// PTX ISA, ldmatrix: "each row ... must be aligned"; addresses are in .shared.
TEST(LdmatrixTest, ReportsBadAddresses) {
  EXPECT_EQ(mistake_of_load([](char* p) { return p + 16 * threadIdx.x; }), "");
  EXPECT_THAT(mistake_of_load([](char* p) { return p + 16 * threadIdx.x + 8; }),
              HasSubstr("multiples of 16"));
  EXPECT_THAT(mistake_of_load([](char* p) { return p + 32 * threadIdx.x + 512; }),
              HasSubstr("outside of shared memory"));
}

// CUDA C++ Programming Guide, "Shared Memory": 32 banks of successive 32-bit words.
TEST(LdmatrixTest, CountsBankConflicts) {
  const auto conflicts = [](int pitch) {
    const auto before = emu::stats();
    run_kernel(1, 32, 32 * 128, [&] {
      std::uint32_t r[4];
      gpu::ldmatrix_x4(r, gpu::dynamic_shared<char>() + pitch * static_cast<int>(threadIdx.x));
    });
    EXPECT_EQ(emu::stats().ldmatrix_phases - before.ldmatrix_phases, 4u);
    return emu::stats().ldmatrix_conflicts - before.ldmatrix_conflicts;
  };
  EXPECT_EQ(conflicts(16), 0u);       // 8 rows of 16 bytes: 128 bytes in a row
  EXPECT_EQ(conflicts(80), 0u);       // shifted by 20 banks each
  EXPECT_EQ(conflicts(128), 4 * 7u);  // all 8 rows in the same 4 banks
  EXPECT_EQ(conflicts(64), 4 * 3u);   // two sets of banks for 8 rows
}
}  // namespace
}  // namespace cohort
