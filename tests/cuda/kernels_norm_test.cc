// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "kernels/ops.h"
#include "tests/cuda/kernel_fixture.h"

namespace cohort {
namespace {

using test::DeviceArray;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kEps = 1e-5f;
// By one thread, by runs of one or two threads, two and four runs a thread, in two passes, and
// widths that runs of 8 do not divide.
const std::vector<int64_t> kWidths = {1, 7, 8, 40, 264, 577, 4104, 8200, 16392};

class NormTest : public test::KernelTest {
 protected:
  std::vector<float> norm(DType type, const std::vector<float>& x, int64_t rows,
                          const std::vector<float>& weight) {
    Stream s = stream(type);
    const DeviceArray in = array(DType::f32, x), w = array(DType::f32, weight),
                      out = zeros(type, int64_t(x.size()));
    ops::cuda::rms_norm(s, out.matrix(rows), in.matrix(rows), w.list(), kEps);
    return out.floats();
  }

  struct Added {
    std::vector<float> x, out;
    std::vector<int32_t> errors;
  };
  // y in its own type; out over y where the types allow it.
  Added add_norm(DType type, DType y_type, const std::vector<float>& x, const std::vector<float>& y,
                 const std::vector<float>& weight, int64_t rows) {
    Stream s = stream(type);
    const DeviceArray residual = array(DType::f32, x), more = array(y_type, y),
                      w = array(DType::f32, weight),
                      errors = ints(std::vector<int32_t>(size_t(rows), -1)),
                      separate = zeros(type, int64_t(x.size()));
    const DeviceArray& out = type == y_type ? more : separate;
    ops::cuda::add_rms_norm(s, out.matrix(rows), residual.matrix(rows), more.matrix(rows), w.list(),
                            kEps, errors.list(), 7);
    return {residual.floats(), out.floats(), errors.ints()};
  }
};

void expect_norm(DType type, const std::vector<float>& out, const std::vector<float>& x,
                 const std::vector<float>& weight) {
  const size_t n = weight.size();
  for (size_t first = 0; first < x.size(); first += n) {
    const std::vector<double> expected =
        reference::rms_norm({x.data() + first, n}, weight, double(kEps));
    for (size_t i = 0; i < n; i++)
      ASSERT_NEAR(out[first + i], expected[i], test::allowed(type, expected[i])) << first + i;
  }
}

std::vector<float> row_of(const std::vector<float>& x, size_t row, size_t n) {
  return std::vector<float>(x.begin() + long(row * n), x.begin() + long((row + 1) * n));
}

TEST_F(NormTest, IsCloseToDoublePrecisionInEveryOrderOfThreads) {
  std::mt19937 random(1);
  for (const int64_t n : kWidths) {
    const std::vector<float> x = reference::random_floats(2 * n, random, 3),
                             weight = reference::random_floats(n, random);
    for (const DType type : test::activation_types()) {
      std::vector<float> first;
      in_every_order([&] {
        const std::vector<float> out = norm(type, x, 2, weight);
        if (first.empty()) first = out;
        EXPECT_TRUE(same_bits(out, first));
      });
      expect_norm(type, first, x, weight);
    }
  }
}

TEST_F(NormTest, ARowAloneEqualsItselfInABatch) {
  std::mt19937 random(2);
  for (const int64_t n : {40, 577, 4104}) {
    const std::vector<float> x = reference::random_floats(5 * n, random),
                             weight = reference::random_floats(n, random);
    const std::vector<float> all = norm(DType::bf16, x, 5, weight);
    for (size_t r = 0; r < 5; r++)
      EXPECT_TRUE(same_bits(norm(DType::bf16, row_of(x, r, size_t(n)), 1, weight),
                            row_of(all, r, size_t(n))));
  }
}

TEST_F(NormTest, WorksInPlace) {
  std::mt19937 random(3);
  for (const int64_t n : {8200, 16392, 577}) {
    const std::vector<float> x = reference::random_floats(n, random),
                             weight = reference::random_floats(n, random);
    Stream s = stream(DType::f32);
    const DeviceArray in = array(DType::f32, x), w = array(DType::f32, weight);
    ops::cuda::rms_norm(s, in.matrix(1), in.matrix(1), w.list(), kEps);
    EXPECT_TRUE(same_bits(in.floats(), norm(DType::f32, x, 1, weight)));
  }
}

TEST_F(NormTest, AddsThenNormalises) {
  std::mt19937 random(4);
  for (const int64_t n : kWidths)
    for (const DType type : test::activation_types())
      for (const DType y_type : {type, DType::f32}) {
        const std::vector<float> x = reference::random_floats(2 * n, random),
                                 y = test::rounded(y_type, reference::random_floats(2 * n, random)),
                                 weight = reference::random_floats(n, random);
        std::vector<float> sum = x;
        for (size_t i = 0; i < sum.size(); i++) sum[i] += y[i];
        const Added got = add_norm(type, y_type, x, y, weight, 2);
        EXPECT_TRUE(same_bits(got.x, sum));
        EXPECT_EQ(got.errors, std::vector<int32_t>({-1, -1}));
        expect_norm(type, got.out, sum, weight);
        EXPECT_TRUE(same_bits(got.out, norm(type, sum, 2, weight)));
      }
}

TEST_F(NormTest, MarksRowsThatAreNotFinite) {
  for (const int64_t n : {8, 40, 577, 8200, 16392}) {
    std::vector<float> x(size_t(6 * n), 1), y = x;
    const auto at = [n](int64_t row, int64_t i) { return size_t(row * n + i); };
    x[at(1, n - 1)] = kInfinity;
    y[at(2, 0)] = std::nanf("");
    x[at(3, n / 2)] = -kInfinity;
    x[at(4, 0)] = 3e38f, x[at(4, n - 1)] = -3e38f;  // finite, though its square is not
    x[at(5, 3)] = 3e38f, y[at(5, 3)] = 3e38f;       // only the sum is not
    const std::vector<int32_t> expected = {-1, 7, 7, 7, -1, 7};
    const std::vector<float> weight(size_t(n), 1);
    for (const DType type : {DType::f32, DType::bf16}) {
      EXPECT_EQ(add_norm(type, type, x, y, weight, 6).errors, expected) << n;
      Stream s = stream(type);
      const DeviceArray residual = array(DType::f32, x), more = array(type, y),
                        errors = ints({-1, 5, -1, -1, -1, -1});
      ops::cuda::add_residual(s, residual.matrix(6), more.matrix(6), errors.list(), 7);
      EXPECT_EQ(errors.ints(), (std::vector<int32_t>{-1, 5, 7, 7, -1, 7})) << n;  // 5 was first
    }
  }
}

TEST_F(NormTest, AddsToTheResidualStream) {
  std::mt19937 random(5);
  for (const int64_t n : {1, 577, 4096, 5000})
    for (const DType type : test::activation_types()) {
      std::vector<float> x = reference::random_floats(3 * n, random);
      const std::vector<float> y = test::rounded(type, reference::random_floats(3 * n, random));
      Stream s = stream(type);
      const DeviceArray residual = array(DType::f32, x), more = array(type, y),
                        errors = ints({-1, -1, -1});
      ops::cuda::add_residual(s, residual.matrix(3), more.matrix(3), errors.list(), 7);
      for (size_t i = 0; i < x.size(); i++) x[i] += y[i];
      EXPECT_TRUE(same_bits(residual.floats(), x));
      EXPECT_EQ(errors.ints(), (std::vector<int32_t>{-1, -1, -1}));
    }
}

TEST_F(NormTest, AReplayedGraphReadsWhatIsThereThen) {
  std::mt19937 random(6);
  const int64_t n = 264;
  const std::vector<float> weight = reference::random_floats(n, random);
  Stream s = stream(DType::f16);
  DeviceArray x = zeros(DType::f32, 2 * n), out = zeros(DType::f16, 2 * n);
  const DeviceArray w = array(DType::f32, weight);
  const CudaGraph graph = CudaGraph::capture(
      device(), [&] { ops::cuda::rms_norm(s, out.matrix(2), x.matrix(2), w.list(), kEps); });
  for (int turn = 0; turn < 3; turn++) {
    const std::vector<float> values = reference::random_floats(2 * n, random);
    x.set(values);
    graph.launch(device().compute());
    expect_norm(DType::f16, out.floats(), values, weight);
  }
}

TEST_F(NormTest, NoRowsAreNoWork) {
  Stream s = stream(DType::f32);
  const DeviceArray w = array(DType::f32, {1, 1});
  ops::cuda::rms_norm(s, Tensor(w.data(), DType::f32, {0, 2}), Tensor(w.data(), DType::f32, {0, 2}),
                      w.list(), kEps);
  EXPECT_EQ(w.floats(), std::vector<float>({1, 1}));
}

}  // namespace
}  // namespace cohort
