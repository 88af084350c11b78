// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/cpu/exp2.h"
#include "kernels/ops.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/streams.h"

namespace cohort {
namespace {

Tensor matrix(std::vector<float>& v, int64_t rows) {
  return Tensor(v.data(), DType::f32, {rows, int64_t(v.size()) / rows});
}

Tensor row_errors(std::vector<int32_t>& v) {
  return Tensor(v.data(), DType::i32, {int64_t(v.size())});
}

TEST(RmsNorm, IsCloseToDoublePrecisionAndEqualForAnyThreads) {
  std::mt19937 random(1);
  for (int64_t n : {1, 15, 16, 17, 576, 5000}) {
    const int64_t rows = 9;
    std::vector<float> x = reference::random_floats(rows * n, random, 3);
    std::vector<float> weight = reference::random_floats(n, random), first;
    for (int threads : {1, 2, 3}) {
      Stream stream(threads, detect_isa());
      std::vector<float> out(x.size());
      ops::rms_norm(stream, matrix(out, rows), matrix(x, rows),
                    Tensor(weight.data(), DType::f32, {n}), 1e-5f);
      if (first.empty()) first = out;
      EXPECT_TRUE(same_bits(out, first));
    }
    for (int64_t r = 0; r < rows; r++) {
      const auto expected =
          reference::rms_norm({x.data() + r * n, size_t(n)}, weight, double(1e-5f));
      for (int64_t i = 0; i < n; i++) {
        const double e = expected[size_t(i)];
        EXPECT_NEAR(first[size_t(r * n + i)], e, reference::kElementwise * std::fabs(e));
      }
    }
    Stream stream(1, Isa::portable);
    ops::rms_norm(stream, matrix(x, rows), matrix(x, rows), Tensor(weight.data(), DType::f32, {n}),
                  1e-5f);  // in place
    EXPECT_TRUE(same_bits(x, first));
  }
}

TEST(SiluMul, IsCloseToDoublePrecisionAndEqualForAnyIsa) {
  std::mt19937 random(2);
  const int64_t rows = 40, n = 613;
  std::vector<float> gate_up = reference::random_floats(rows * 2 * n, random, 6), first;
  for (Isa isa : isas())
    for (int threads : {1, 3}) {
      Stream stream(threads, isa);
      std::vector<float> out(size_t(rows * n));
      ops::silu_mul(stream, matrix(out, rows), matrix(gate_up, rows));
      if (first.empty()) first = out;
      EXPECT_TRUE(same_bits(out, first)) << name(isa);
    }
  for (int64_t i = 0; i < rows * n; i++) {
    const size_t gate = size_t(i / n * 2 * n + i % n);
    const double up = double(gate_up[gate + size_t(n)]);
    // The error of e^-x grows with its exponent: |x| 2^-24 relative.
    const double relative = reference::kElementwise * (1 + std::fabs(double(gate_up[gate])));
    const double expected = reference::silu(double(gate_up[gate])) * up;
    EXPECT_NEAR(first[size_t(i)], expected, relative * std::fabs(expected));
  }
}

TEST(SiluMul, LargeAndInvalidInputs) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (Isa isa : isas()) {
    Stream stream(1, isa);
    std::vector<float> gate_up(32, 1.0f), out(16);
    gate_up[0] = 1e30f;
    gate_up[1] = -1e30f;
    gate_up[2] = std::numeric_limits<float>::quiet_NaN();
    gate_up[3] = kInfinity;
    gate_up[4] = -0.0f;
    ops::silu_mul(stream, matrix(out, 1), matrix(gate_up, 1));
    EXPECT_EQ(out[0], 1e30f);
    EXPECT_EQ(out[1], 0);
    EXPECT_TRUE(std::isnan(out[2]));
    EXPECT_EQ(out[3], kInfinity);
    EXPECT_EQ(out[4], 0);
  }
}

TEST(Exp2, IsAccurateAndExactAtZero) {
  EXPECT_EQ(exp2_not_positive(0), 1);
  EXPECT_EQ(exp2_not_positive(-64.001f), 0);
  for (float x = -64; x <= 0; x += 0.00137f) {
    const double expected = std::exp2(double(x));
    EXPECT_NEAR(double(exp2_not_positive(x)), expected, 8.1e-8 * expected) << x;
  }
}

TEST(AddResidual, AddsAndMarksForAnyThreads) {
  std::mt19937 random(3);
  for (int threads : {1, 2, 3}) {
    Stream stream(threads, Isa::portable);
    std::vector<float> x = reference::random_floats(20001, random), y = x;
    const std::vector<float> before = x;
    for (float& v : y) v *= 0.3f;
    x[9] = std::numeric_limits<float>::infinity();
    std::vector<int32_t> errors = {-1, 7, -1};
    ops::add_residual(stream, matrix(x, 3), matrix(y, 3), row_errors(errors), 4);
    EXPECT_EQ(errors, (std::vector<int32_t>{4, 7, -1}));
    for (size_t i = 10; i < x.size(); i++) ASSERT_EQ(x[i], before[i] + y[i]);
  }
}

TEST(AddRmsNorm, IsTheSumAndThenTheNorm) {
  std::mt19937 random(4);
  const int64_t rows = 3, n = 200;
  Stream stream(2, Isa::portable);
  std::vector<float> x = reference::random_floats(rows * n, random), sum = x, y = x, out(x.size());
  const std::vector<float> weight = reference::random_floats(n, random);
  for (size_t i = 0; i < y.size(); i++) sum[i] += y[i] = 0.4f * x[x.size() - 1 - i];
  std::vector<int32_t> errors(rows, -1);
  const Tensor w(weight.data(), DType::f32, {n});
  ops::add_rms_norm(stream, matrix(out, rows), matrix(x, rows), matrix(y, rows), w, 1e-5f,
                    row_errors(errors), 4);
  EXPECT_EQ(x, sum);
  for (int64_t r = 0; r < rows; r++) {
    const auto expected =
        reference::rms_norm(std::span(sum).subspan(size_t(r * n), n), weight, 1e-5);
    for (int64_t i = 0; i < n; i++)
      ASSERT_NEAR(out[size_t(r * n + i)], expected[size_t(i)],
                  reference::kElementwise * std::abs(expected[size_t(i)]));
  }
}

TEST(Interleave, PutsBlocksSideBySide) {
  Stream stream(2, Isa::portable);
  const std::vector<float> gathered = {1, 2, 3, 4, 10, 20};  // [2][2], then [2][1]
  std::vector<float> out(6);
  const int64_t widths[] = {2, 1};
  ops::interleave(stream, matrix(out, 2), Tensor(gathered.data(), DType::f32, {6}), widths);
  EXPECT_EQ(out, (std::vector<float>{1, 2, 10, 3, 4, 20}));
}

TEST(GatherRows, CopiesRowsInOrder) {
  Stream stream(2, Isa::portable);
  std::vector<float> x(4 * 3), out(2 * 3);
  for (size_t i = 0; i < x.size(); i++) x[i] = float(i);
  const int32_t rows[] = {3, 1};
  ops::gather_rows(stream, matrix(out, 2), matrix(x, 4), Tensor(rows, DType::i32, {2}));
  EXPECT_EQ(out, (std::vector<float>{9, 10, 11, 3, 4, 5}));
}

TEST(FindNotFinite, MarksOnlyBadRowsAndKeepsEarlierErrors) {
  for (int threads : {1, 3}) {
    Stream stream(threads, Isa::portable);
    const int64_t rows = 6, n = 3001;
    std::vector<float> x(size_t(rows * n), 3.4e38f);
    x[size_t(1 * n + 3000)] = std::numeric_limits<float>::quiet_NaN();
    x[size_t(3 * n)] = -std::numeric_limits<float>::infinity();
    x[size_t(4 * n + 7)] = std::numeric_limits<float>::infinity();
    std::vector<int32_t> errors = {-1, -1, -1, -1, 5, -1};
    ops::find_not_finite(stream, row_errors(errors), matrix(x, rows), 9);
    EXPECT_EQ(errors, (std::vector<int32_t>{-1, 9, -1, 9, 5, -1}));
  }
}

}  // namespace
}  // namespace cohort
