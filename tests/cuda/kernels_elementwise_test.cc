// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "kernels/cuda/elementwise.h"
#include "kernels/ops.h"
#include "tests/cuda/kernel_fixture.h"

namespace cohort {
namespace {

using test::DeviceArray;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Below it an exponential may be infinite and a result zero.
constexpr double kTiny = 1e-36;

using Gated = void(Stream&, Tensor out, Tensor gate_up);

class ElementwiseTest : public test::KernelTest {
 protected:
  std::vector<float> gated(Gated* op, DType type, const std::vector<float>& gate_up, int64_t rows) {
    Stream s = stream(type);
    const DeviceArray in = array(type, gate_up), out = zeros(type, int64_t(gate_up.size() / 2));
    op(s, out.matrix(rows), in.matrix(rows));
    return out.floats();
  }

  // exponent: that of e in the function, whose error grows with it.
  void expect_close(Gated* op, double (*function)(double), double (*exponent)(double)) {
    std::mt19937 random(1);
    const int64_t rows = 3;
    for (const int64_t n : {1, 8, 20, 264, 613, 2056})
      for (const DType type : test::activation_types()) {
        const std::vector<float> in =
            test::rounded(type, reference::random_floats(rows * 2 * n, random, 4));
        std::vector<float> out;
        in_every_order([&] {
          const std::vector<float> again = gated(op, type, in, rows);
          if (out.empty()) out = again;
          EXPECT_TRUE(same_bits(again, out));
        });
        for (int64_t i = 0; i < rows * n; i++) {
          const size_t gate = size_t(i / n * 2 * n + i % n);
          const double g = double(in[gate]), up = double(in[gate + size_t(n)]);
          const double expected = function(g) * up;
          const double relative = reference::kElementwise * (1 + std::fabs(exponent(g)));
          ASSERT_NEAR(out[size_t(i)], expected, test::allowed(type, expected, relative) + kTiny)
              << g;
        }
      }
  }
};

TEST_F(ElementwiseTest, SiluIsCloseToDoublePrecision) {
  expect_close(ops::cuda::silu_mul, reference::silu, [](double x) { return x; });
}

TEST_F(ElementwiseTest, GeluIsCloseToDoublePrecision) {
  expect_close(cuda::gelu_mul, reference::gelu_tanh,
               [](double x) { return 1.6 * (x + 0.045 * x * x * x); });
}

TEST_F(ElementwiseTest, LargeAndInvalidInputs) {
  for (Gated* op : {&ops::cuda::silu_mul, &cuda::gelu_mul})
    for (const int64_t n : {8, 5}) {
      std::vector<float> in(size_t(2 * n), 1);
      in[0] = 1e30f;
      in[1] = -1e30f;
      in[2] = std::nanf("");
      in[3] = kInfinity;
      in[4] = -0.0f;
      const std::vector<float> out = gated(op, DType::f32, in, 1);
      EXPECT_EQ(out[0], 1e30f);
      EXPECT_EQ(out[1], 0);
      EXPECT_TRUE(std::isnan(out[2]));
      EXPECT_EQ(out[3], kInfinity);
      EXPECT_EQ(out[4], 0);
    }
}

TEST_F(ElementwiseTest, F16SaturatesAndBf16DoesNot) {
  std::vector<float> in(16, 60000);  // 60000^2
  const std::vector<float> f16 = gated(ops::cuda::silu_mul, DType::f16, in, 1);
  EXPECT_EQ(f16, std::vector<float>(8, 65504));
  in.assign(16, kInfinity);
  EXPECT_EQ(gated(ops::cuda::silu_mul, DType::f16, in, 1), std::vector<float>(8, kInfinity));
  in.assign(16, 0x1p70f);
  EXPECT_EQ(gated(ops::cuda::silu_mul, DType::bf16, in, 1), std::vector<float>(8, kInfinity));
}

TEST_F(ElementwiseTest, ARowAloneEqualsItselfInABatch) {
  std::mt19937 random(2);
  for (const size_t n : {40, 613}) {
    const std::vector<float> in =
        test::rounded(DType::f16, reference::random_floats(int64_t(10 * n), random));
    const std::vector<float> all = gated(ops::cuda::silu_mul, DType::f16, in, 5);
    for (size_t r = 0; r < 5; r++) {
      const std::vector<float> alone(in.begin() + long(2 * n * r),
                                     in.begin() + long(2 * n * (r + 1)));
      EXPECT_TRUE(same_bits(
          gated(ops::cuda::silu_mul, DType::f16, alone, 1),
          std::vector<float>(all.begin() + long(n * r), all.begin() + long(n * (r + 1)))));
    }
  }
}

TEST_F(ElementwiseTest, FindsRowsThatAreNotFinite) {
  Stream s = stream(DType::bf16);
  for (const int64_t n : {1, 8, 3001, 40000}) {
    std::vector<float> x(size_t(6 * n), 3.4e38f);
    x[size_t(2 * n - 1)] = std::nanf("");
    x[size_t(3 * n)] = -kInfinity;
    x[size_t(4 * n + n / 2)] = kInfinity;
    const DeviceArray in = array(DType::f32, x);
    in_every_order([&] {
      const DeviceArray errors = ints({-1, -1, -1, -1, 5, -1});
      ops::cuda::find_not_finite(s, errors.list(), in.matrix(6), 9);
      EXPECT_EQ(errors.ints(), (std::vector<int32_t>{-1, 9, -1, 9, 5, -1})) << n;
    });
  }
}

TEST_F(ElementwiseTest, AReplayedGraphReadsWhatIsThereThen) {
  Stream s = stream(DType::bf16);
  DeviceArray in = zeros(DType::bf16, 32), out = zeros(DType::bf16, 16),
              logits = zeros(DType::f32, 16), errors = ints({-1, -1});
  const CudaGraph graph = CudaGraph::capture(device(), [&] {
    ops::cuda::silu_mul(s, out.matrix(2), in.matrix(2));
    ops::cuda::find_not_finite(s, errors.list(), logits.matrix(2), 3);
  });
  for (const float value : {0.0f, 30.0f, 64.0f}) {  // silu is the identity there
    in.set(std::vector<float>(32, value));
    std::vector<float> x(16, value);
    if (value == 64) x[9] = kInfinity;
    logits.set(x);
    graph.launch(device().compute());
    EXPECT_EQ(out.floats(), test::rounded(DType::bf16, std::vector<float>(16, value * value)));
    EXPECT_EQ(errors.ints(), (std::vector<int32_t>{-1, value == 64 ? 3 : -1}));
  }
}

}  // namespace
}  // namespace cohort
