// SPDX-License-Identifier: Apache-2.0
// Products by cuBLASLt: shapes, types and strides, and which products share an algorithm. The
// emulated library's algorithms differ in the order of their sums and prefer different numbers of
// rows, so that bits tell which one ran.
#include "kernels/cuda/gemm.h"

#include <cmath>

#include "tests/cuda/products.h"
#include "tests/kernels/streams.h"

namespace cohort {
namespace {

struct Shape {
  int64_t rows, n, k;
  int32_t batch = 1;
  int64_t gap = 0;  // elements between rows that belong to nobody
};

class GemmTest : public test::ProductTest {
 protected:
  struct Operands {
    std::vector<float> x, w;  // [batch][rows or n][k + gap], of type `in`
  };
  static Operands operands(const Shape& s, DType in) {
    std::mt19937 random(11);
    Operands o;
    o.x = test::rounded(reference::random_floats(s.batch * s.rows * (s.k + s.gap), random), in);
    o.w = test::rounded(reference::random_floats(s.batch * s.n * (s.k + s.gap), random), in);
    return o;
  }
  // y [batch][rows][n + gap]
  std::vector<float> run(cuda::GemmTable& table, const Shape& s, const Operands& o, DType in,
                         DType out) const {
    const auto size = size_t(s.batch * s.rows * (s.n + s.gap));
    const Buffer x = up(o.x, in), w = up(o.w, in), y = up(std::vector<float>(size, -7.0f), out);
    cuda::Gemm g{};
    g.x = x.data();
    g.w = w.data();
    g.y = y.data();
    g.in = in;
    g.out = out;
    g.rows = s.rows;
    g.n = s.n;
    g.k = s.k;
    g.x_stride = g.w_stride = s.k + s.gap;
    g.y_stride = s.n + s.gap;
    g.batch = s.batch;
    g.x_batch = s.rows * g.x_stride;
    g.w_batch = s.n * g.w_stride;
    g.y_batch = s.rows * g.y_stride;
    table.run(g);
    return down(y, out, size);
  }
  static void expect_product(const std::vector<float>& y, const Shape& s, const Operands& o,
                             DType out) {
    for (int64_t i = 0; i < int64_t(y.size()); i++) {
      const int64_t row = i / (s.n + s.gap), column = i % (s.n + s.gap);
      if (column >= s.n) {
        ASSERT_EQ(y[size_t(i)], -7.0f) << "between rows";
        continue;
      }
      const float* x = &o.x[size_t(row * (s.k + s.gap))];
      const float* w = &o.w[size_t((row / s.rows * s.n + column) * (s.k + s.gap))];
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < s.k; k++) {
        sum += double(x[k]) * double(w[k]);
        magnitude += std::fabs(double(x[k]) * double(w[k]));
      }
      ASSERT_NEAR(y[size_t(i)], sum, 2e-6 * magnitude + test::half_ulp(out, sum)) << i;
    }
  }
};

TEST_F(GemmTest, IsTheProductForAllTypesAndShapes) {
  for (bool fixed_order : {false, true}) {
    cuda::GemmTable table(*gpu_, fixed_order);
    for (const Shape& s : {Shape{1, 64, 128},
                           {5, 33, 70},
                           {17, 1, 96},
                           {130, 40, 64},
                           {3, 24, 32, 4},
                           {20, 5, 48, 3},
                           {6, 16, 40, 1, 8},
                           {6, 17, 33, 2, 3}})
      for (DType in : {DType::f32, DType::f16, DType::bf16})
        for (DType out : {DType::f32, in})
          expect_product(run(table, s, operands(s, in), in, out), s, operands(s, in), out);
  }
}

TEST_F(GemmTest, NothingIsDoneForNoRowsAndNoColumns) {
  cuda::GemmTable table(*gpu_, false);
  for (const Shape& s : {Shape{0, 4, 32}, {4, 0, 32}})
    EXPECT_TRUE(run(table, s, operands(s, DType::f16), DType::f16, DType::f32).empty());
  EXPECT_EQ(table.remembered(), 0u);
}

TEST_F(GemmTest, AnAlgorithmIsRememberedPerBucketOfRows) {
  cuda::GemmTable table(*gpu_, false), fixed(*gpu_, true);
  const auto ask = [&](const Shape& s) {
    for (cuda::GemmTable* t : {&table, &fixed})
      run(*t, s, operands(s, DType::bf16), DType::bf16, DType::f32);
  };
  for (int64_t rows : {5, 6, 8, 7}) ask({rows, 16, 64});
  EXPECT_EQ(table.remembered(), 1u);
  ask({9, 16, 64});
  EXPECT_EQ(table.remembered(), 2u);
  ask({9, 32, 64});
  EXPECT_EQ(table.remembered(), 3u);
  EXPECT_EQ(fixed.remembered(), 1u);
  ask({9, 32, 128});
  EXPECT_EQ(fixed.remembered(), 2u);
}

// One row's bits for every number of rows it comes with, and whether they were always the same.
class RowBits : public GemmTest {
 protected:
  bool same_for_all_rows(bool fixed_order) const {
    cuda::GemmTable table(*gpu_, fixed_order);
    const Shape most{160, 24, 320};
    const Operands all = operands(most, DType::f16);
    std::vector<float> first;
    for (int64_t rows : {1, 2, 9, 17, 64, 100, 160}) {
      const Operands some{test::head(all.x, rows, most.k), all.w};
      auto y = run(table, {rows, most.n, most.k}, some, DType::f16, DType::f32);
      y.resize(size_t(most.n));
      if (first.empty()) first = y;
      if (std::memcmp(y.data(), first.data(), y.size() * sizeof(float)) != 0) return false;
    }
    return true;
  }
};

TEST_F(RowBits, DoNotDependOnTheNumberOfRowsInFixedOrder) { EXPECT_TRUE(same_for_all_rows(true)); }
// The counter-check: this test can tell algorithms apart.
TEST_F(RowBits, DependOnTheNumberOfRowsOtherwise) { EXPECT_FALSE(same_for_all_rows(false)); }

// Ranks hold other shares of n and of the units, and must get the same bits.
TEST_F(GemmTest, InFixedOrderNeitherNNorTheBatchChangesBits) {
  cuda::GemmTable table(*gpu_, true);
  const int64_t rows = 7, n = 48, k = 256;
  const int32_t units = 4;
  const Shape whole{rows, n, k, units};
  const Operands o = operands(whole, DType::bf16);
  const auto expected = run(table, whole, o, DType::bf16, DType::f32);
  for (int32_t unit = 0; unit < units; unit++)
    for (int64_t part : {16, 48}) {
      Operands mine;
      mine.x = {o.x.begin() + unit * rows * k, o.x.begin() + (unit + 1) * rows * k};
      mine.w = {o.w.begin() + unit * n * k, o.w.begin() + (unit * n + part) * k};
      const auto y = run(table, {rows, part, k}, mine, DType::bf16, DType::f32);
      for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < part; i++)
          ASSERT_EQ(y[size_t(r * part + i)], expected[size_t((unit * rows + r) * n + i)]);
    }
}

}  // namespace
}  // namespace cohort
