// SPDX-License-Identifier: Apache-2.0
// Element-wise ops on rows, and norms of the heads in them, against double precision.
#include <cmath>
#include <limits>

#include "kernels/ops.h"
#include "tests/cuda/kernel_fixture.h"

namespace cohort {
namespace {

using test::DeviceArray;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class RowMathTest : public test::KernelTest {};

void expect_near(float got, double expected, DType type) {
  ASSERT_NEAR(got, expected, test::allowed(type, expected) + 1e-30);  // tiny ones may be 0
}

TEST_F(RowMathTest, GatesRows) {
  std::mt19937 random(1);
  for (const DType type : test::activation_types())
    for (const int64_t width : {1, 5, 64, 2056}) {
      Stream s = stream(type);
      const auto y = test::rounded(type, reference::random_floats(4 * width, random));
      const std::vector<float> gate = {-100, -0.7f, 2, kNan};
      const DeviceArray out = array(type, y), g = array(DType::f32, gate);
      ops::gate_rows(s, out.matrix(4), g.matrix(4));
      const std::vector<float> got = out.floats();
      for (size_t i = 0; i < got.size(); i++) {
        const double x = gate[i / size_t(width)];
        if (std::isnan(x))
          ASSERT_TRUE(std::isnan(got[i]));
        else
          expect_near(got[i], reference::sigmoid(x) * double(y[i]), type);
      }
    }
}

TEST_F(RowMathTest, AddsAndAddsBiases) {
  std::mt19937 random(2);
  for (const DType type : test::activation_types())
    for (const int64_t width : {1, 5, 64, 2056}) {
      Stream s = stream(type);
      const auto x = test::rounded(type, reference::random_floats(3 * width, random));
      const auto more = test::rounded(type, reference::random_floats(3 * width, random));
      const auto bias = reference::random_floats(width, random);
      const DeviceArray in = array(type, more), b = array(DType::f32, bias);
      in_every_order([&] {
        const DeviceArray sum = array(type, x), biased = array(type, x);
        ops::add(s, sum.matrix(3), in.matrix(3));
        ops::add_bias(s, biased.matrix(3), b.list());
        const std::vector<float> sums = sum.floats(), shifted = biased.floats();
        for (size_t i = 0; i < sums.size(); i++) {
          // One addition in f32, then one rounding.
          ASSERT_EQ(sums[i], test::rounded(type, {x[i] + more[i]})[0]);
          ASSERT_EQ(shifted[i], test::rounded(type, {x[i] + bias[i % size_t(width)]})[0]);
        }
      });
    }
}

struct HeadsCase {
  int64_t width, first, heads, dim;
};

TEST_F(RowMathTest, NormsHeadsAndTouchesNothingElse) {
  std::mt19937 random(3);
  const int64_t rows = 3;
  const float eps = 1e-5f;
  for (const DType type : test::activation_types())
    for (const HeadsCase& c : {HeadsCase{64, 0, 4, 16}, HeadsCase{640, 256, 2, 128},
                               HeadsCase{50, 3, 3, 7}, HeadsCase{600, 8, 1, 512}}) {
      Stream s = stream(type);
      const auto x = test::rounded(type, reference::random_floats(rows * c.width, random));
      const auto weight = reference::random_floats(c.dim, random);
      const DeviceArray w = array(DType::f32, weight);
      in_every_order([&] {
        const DeviceArray out = array(type, x);
        ops::norm_heads(s, out.matrix(rows), c.first, c.heads, w.list(), eps);
        const std::vector<float> got = out.floats();
        for (int64_t row = 0; row < rows; row++) {
          for (int64_t h = 0; h < c.heads; h++) {
            const size_t at = size_t(row * c.width + c.first + h * c.dim);
            const auto expected = reference::rms_norm({&x[at], size_t(c.dim)}, weight, eps);
            for (size_t i = 0; i < expected.size(); i++)
              expect_near(got[at + i], expected[i], type);
          }
          for (int64_t i = 0; i < c.width; i++)
            if (i < c.first || i >= c.first + c.heads * c.dim) {
              ASSERT_EQ(got[size_t(row * c.width + i)], x[size_t(row * c.width + i)]);
            }
        }
      });
    }
}

TEST_F(RowMathTest, AHeadHasTheSameBitsAloneAndInABatch) {
  std::mt19937 random(4);
  Stream s = stream(DType::f16);
  const auto x = reference::random_floats(9 * 3 * 72, random);
  const auto weight = reference::random_floats(72, random);
  const DeviceArray w = array(DType::f32, weight), all = array(DType::f16, x);
  ops::norm_heads(s, all.matrix(9), 0, 3, w.list(), 1e-6f);
  const std::vector<float> together = all.floats();
  for (const int64_t head : {0, 13, 26}) {
    const auto begin = x.begin() + head * 72, expected = together.begin() + head * 72;
    const DeviceArray one = array(DType::f16, {begin, begin + 72});
    ops::norm_heads(s, one.matrix(1), 0, 1, w.list(), 1e-6f);
    EXPECT_TRUE(same_bits(one.floats(), {expected, expected + 72}));
  }
}

TEST_F(RowMathTest, AReplayedGraphReadsWhatIsThereThen) {
  std::mt19937 random(5);
  Stream s = stream(DType::bf16);
  DeviceArray y = zeros(DType::bf16, 2 * 16), x = zeros(DType::bf16, 2 * 16);
  const DeviceArray gate = array(DType::f32, {0, 0}),
                    bias = array(DType::f32, std::vector<float>(16, 1));
  const CudaGraph graph = CudaGraph::capture(device(), [&] {
    ops::add(s, y.matrix(2), x.matrix(2));
    ops::add_bias(s, y.matrix(2), bias.list());
    ops::gate_rows(s, y.matrix(2), gate.matrix(2));
  });
  for (const float value : {1.0f, 3.0f}) {
    y.set(std::vector<float>(32, value));
    x.set(std::vector<float>(32, 2 * value));
    graph.launch(device().compute());
    EXPECT_EQ(y.floats(), std::vector<float>(32, (3 * value + 1) / 2));
  }
}

}  // namespace
}  // namespace cohort
