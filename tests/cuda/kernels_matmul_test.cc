// SPDX-License-Identifier: Apache-2.0
// Matrix products on a GPU: against double precision, against the CPU's bits, and against
// themselves.
#include <cmath>
#include <limits>

#include "kernels/cuda/product.h"
#include "kernels/cuda/state.h"
#include "tests/cuda/products.h"
#include "tests/kernels/streams.h"

namespace cohort {
namespace {

using reference::Weights;

// Weights as the GPU holds them: plain ones are rounded to the type of the activations.
Weights held(Weights w, DType activations) {
  if (!is_quantized(w.type)) w.values = test::rounded(w.values, activations);
  return w;
}

class MatmulOfType : public test::ProductTest,
                     public testing::WithParamInterface<std::tuple<DType, DType>> {
 protected:
  DType type() const { return std::get<0>(GetParam()); }
  DType activations() const { return std::get<1>(GetParam()); }

  // `weight_error`: of a weight, relative, where weights are rounded on the way.
  void expect_close(const std::vector<float>& y, const std::vector<float>& x, int64_t rows,
                    const Weights& w, DType out, double weight_error = 0) const {
    const auto expected =
        reference::matmul(test::rounded(x, activations()), rows, held(w, activations()));
    const double relative = reference::tolerance(type()).f32_activations + weight_error;
    ASSERT_EQ(y.size(), expected.y.size());
    for (size_t i = 0; i < y.size(); i++)
      ASSERT_NEAR(y[i], expected.y[i],
                  relative * expected.magnitude[i] + test::half_ulp(out, expected.y[i]))
          << "element " << i << ", " << rows << " rows, " << w.columns << " columns";
  }
};

TEST_P(MatmulOfType, IsCloseToDoublePrecision) {
  std::mt19937 random(1);
  const auto s = stream(activations());
  for (int64_t columns : {160, 512}) {
    if (columns % info(type()).block_elements != 0) continue;
    const Weights w = reference::random_weights(type(), 45, columns, random);
    const std::vector<float> x = reference::random_floats(70 * columns, random);
    const Matrix matrix = reference::pack(*s, 0, {&w});
    for (int64_t rows : {1, 2, 5, 8, 9, 17, 70}) {
      const DType out = rows % 2 == 0 ? DType::f32 : activations();
      expect_close(
          multiply(*s, test::head(x, rows, columns), rows, matrix, ActivationMode::native, out), x,
          rows, w, out);
    }
  }
}

TEST_P(MatmulOfType, IsCloseToDoublePrecisionForManyRows) {
  std::mt19937 random(2);
  const auto s = stream(activations());
  const int64_t rows = 257, columns = 256;
  const Weights w = reference::random_weights(type(), 37, columns, random);
  const std::vector<float> x = reference::random_floats(rows * columns, random);
  const auto y = multiply(*s, x, rows, reference::pack(*s, 0, {&w}), ActivationMode::native);
  // Weights become the type of the activations here, so that they round.
  const double weight = activations() == DType::f32 ? 0 : test::half_ulp(activations(), 1);
  expect_close(y, x, rows, w, DType::f32, is_quantized(type()) ? weight : 0);
}

// Every row has the bits it has alone, whatever the kernel.
TEST_P(MatmulOfType, InFixedOrderARowHasTheSameBitsInAnyBatch) {
  std::mt19937 random(3);
  const auto s = stream(activations(), true);
  const int64_t columns = 512, n = 41;
  for (ActivationMode mode : {ActivationMode::native, ActivationMode::int8})
    for (int64_t unit : {0, 256}) {
      if (mode == ActivationMode::int8 && !is_quantized(type())) continue;
      const Weights w = reference::random_weights(type(), n, columns, random);
      const Matrix matrix = reference::pack(*s, unit, {&w});
      const std::vector<float> x = reference::random_floats(33 * columns, random);
      const auto all = multiply(*s, x, 33, matrix, mode);
      for (int64_t rows : {1, 8, 9, 17})
        ASSERT_TRUE(same_bits(multiply(*s, test::head(x, rows, columns), rows, matrix, mode),
                              test::head(all, rows, n)))
            << rows << " rows, units of " << unit;
    }
}

// Pieces of ranks, added in the order of the tree, are the whole.
TEST_P(MatmulOfType, PiecesAddUpToTheWhole) {
  std::mt19937 random(4);
  const auto s = stream(activations());
  const int64_t rows = 3, unit = 256, n = 21, units = 5;
  const Weights w = reference::random_weights(type(), n, unit * units, random);
  const Matrix matrix = reference::pack(*s, unit, {&w});
  const std::vector<float> x = reference::random_floats(rows * unit * units, random);
  const auto whole = multiply(*s, x, rows, matrix, ActivationMode::native);
  expect_close(whole, x, rows, w, DType::f32);
  const TreePlan plan(units, {{0, 3}, {3, 5}});
  std::vector<std::vector<float>> sums;
  for (int rank = 0; rank < 2; rank++) {
    const auto y =
        multiply(*s, x, rows, matrix, ActivationMode::native, DType::f32, plan.pieces(rank));
    for (size_t p = 0; p < plan.pieces(rank).size(); p++)
      sums.emplace_back(y.begin() + int64_t(p) * rows * n, y.begin() + (int64_t(p) + 1) * rows * n);
  }
  std::vector<float*> pointers;
  for (auto& sum : sums) pointers.push_back(sum.data());
  plan.add_up(pointers.data(), rows * n);
  EXPECT_TRUE(same_bits(sums[0], whole));
}

TEST_P(MatmulOfType, NanAndInfinityStayInTheirRow) {
  std::mt19937 random(5);
  const auto s = stream(activations(), true);
  const int64_t rows = 18, columns = 256, n = 20;
  const Weights w = reference::random_weights(type(), n, columns, random);
  const Matrix matrix = reference::pack(*s, 0, {&w});
  const std::vector<float> x = reference::random_floats(rows * columns, random);
  for (ActivationMode mode : {ActivationMode::native, ActivationMode::int8})
    for (int64_t count : {int64_t(6), rows}) {
      const auto clean = multiply(*s, test::head(x, count, columns), count, matrix, mode);
      std::vector<float> poisoned = test::head(x, count, columns);
      poisoned[size_t(2 * columns + 77)] = std::numeric_limits<float>::quiet_NaN();
      poisoned[size_t(4 * columns + 3)] = std::numeric_limits<float>::infinity();
      const auto y = multiply(*s, poisoned, count, matrix, mode);
      for (int64_t i = 0; i < count * n; i++) {
        const int64_t row = i / n;
        if (row == 2 || row == 4)
          EXPECT_FALSE(std::isfinite(y[size_t(i)])) << i;
        else
          EXPECT_EQ(y[size_t(i)], clean[size_t(i)]) << i;
      }
    }
}

// The CPU's arithmetic, bit for bit, for f32 activations: integers, and everything in f32.
TEST_P(MatmulOfType, QuantisedWeightsHaveTheBitsOfTheCpu) {
  if (!is_quantized(type())) GTEST_SKIP() << "of quantised weights only";
  std::mt19937 random(6);
  const auto s = stream(activations());
  Stream cpu(1, Isa::portable);
  const int64_t columns = 768, n = 53;
  for (int64_t unit : {0, 256}) {
    const Weights w = reference::random_weights(type(), n, columns, random);
    const Matrix matrix = reference::pack(*s, unit, {&w}),
                 on_cpu = reference::pack(cpu, unit, {&w});
    const std::vector<float> x =
        test::rounded(reference::random_floats(39 * columns, random), activations());
    for (ActivationMode mode : {ActivationMode::int8, ActivationMode::f32})
      for (int64_t rows : {1, 5, 8, 17, 39}) {
        if (mode == ActivationMode::f32 && rows > 5) continue;
        Activations prepared(cpu, rows, columns, mode);
        ops::prepare(cpu, prepared, Tensor(x.data(), DType::f32, {rows, columns}));
        std::vector<float> expected(size_t(rows * n));
        const std::vector<UnitRange> pieces = {{0, matrix.units()}};
        ops::matmul(cpu, Tensor(expected.data(), DType::f32, {1, rows, n}), prepared, on_cpu,
                    pieces);
        const auto y = multiply(*s, test::head(x, rows, columns), rows, matrix, mode);
        ASSERT_TRUE(same_bits(y, expected)) << rows << " rows, units of " << unit;
      }
  }
}

// Products do not depend on the order in which a device runs its threads.
TEST_P(MatmulOfType, AnyOrderOfThreadsGivesTheSameBits) {
  std::mt19937 random(7);
  const auto s = stream(activations());
  if (!is_quantized(type())) GTEST_SKIP() << "plain weights are not multiplied by own kernels";
  const int64_t columns = 256, n = 33;
  const Weights w = reference::random_weights(type(), n, columns, random);
  const Matrix matrix = reference::pack(*s, 0, {&w});
  for (int64_t rows : {2, 20}) {
    const std::vector<float> x = reference::random_floats(rows * columns, random);
    for (ActivationMode mode : {ActivationMode::native, ActivationMode::int8}) {
      emu::options().order = emu::Order::forward;
      const auto expected = multiply(*s, x, rows, matrix, mode);
      for (emu::Order order : {emu::Order::reverse, emu::Order::random}) {
        emu::options().order = order;
        ASSERT_TRUE(same_bits(multiply(*s, x, rows, matrix, mode), expected)) << rows;
      }
    }
  }
}

std::string name_of(const testing::TestParamInfo<std::tuple<DType, DType>>& p) {
  return concat(name(std::get<0>(p.param)), "_times_", name(std::get<1>(p.param)));
}
INSTANTIATE_TEST_SUITE_P(Types, MatmulOfType,
                         testing::Combine(testing::ValuesIn(reference::weight_types()),
                                          testing::Values(DType::f16, DType::bf16, DType::f32)),
                         name_of);

class MatmulParts : public test::ProductTest {};

// q, k and v of several types: every part writes its columns.
TEST_F(MatmulParts, OfSeveralTypesStandSideBySide) {
  std::mt19937 random(8);
  const int64_t columns = 512;
  const Weights a = reference::random_weights(DType::q4_k, 45, columns, random);
  const Weights b = reference::random_weights(DType::f16, 7, columns, random);
  const Weights c = reference::random_weights(DType::q6_k, 19, columns, random);
  for (int64_t unit : {0, 256})
    for (int64_t rows : {3, 20, 260})
      for (ActivationMode mode : {ActivationMode::native, ActivationMode::int8}) {
        const auto s = stream(DType::f16, true);
        const std::vector<float> x = reference::random_floats(rows * columns, random);
        const Matrix matrix = reference::pack(*s, unit, {&a, &b, &c});
        ASSERT_EQ(matrix.parts().size(), 3u);
        const auto y = multiply(*s, x, rows, matrix, mode);
        int64_t first = 0;
        for (const Weights* part : {&a, &b, &c}) {
          const auto alone = multiply(*s, x, rows, reference::pack(*s, unit, {part}), mode);
          for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < part->rows; i++)
              ASSERT_EQ(y[size_t(r * matrix.rows() + first + i)],
                        alone[size_t(r * part->rows + i)]);
          first += part->rows;
        }
      }
}

// A step that was captured multiplies what its input holds at each replay.
TEST_F(MatmulParts, CapturedProductsReplay) {
  std::mt19937 random(9);
  const int64_t columns = 512, rows = 5, n = 40;
  for (DType type : {DType::f16, DType::q4_0})
    for (ActivationMode mode : {ActivationMode::native, ActivationMode::int8}) {
      const auto s = stream(DType::f16);
      const Weights w = reference::random_weights(type, n, columns, random);
      const Matrix matrix = reference::pack(*s, 256, {&w});
      const std::vector<UnitRange> pieces = {{0, 2}};
      const Buffer x = gpu_->allocate(size_t(rows * columns) * 2),
                   y = gpu_->allocate(size_t(rows * n) * 4);
      Activations prepared(*s, rows, columns, mode);
      const auto step = [&] {
        ops::prepare(*s, prepared, Tensor(x.data(), DType::f16, {rows, columns}));
        ops::matmul(*s, Tensor(y.data(), DType::f32, {1, rows, n}), prepared, matrix, pieces);
      };
      step();
      const CudaGraph graph = CudaGraph::capture(*gpu_, step);
      for (int replay = 0; replay < 2; replay++) {
        const auto input = reference::random_floats(rows * columns, random);
        const Buffer fresh = up(input, DType::f16);
        cuda_check(cudaMemcpyAsync(x.data(), fresh.data(), x.size(), cudaMemcpyDeviceToDevice,
                                   gpu_->compute()),
                   "cudaMemcpyAsync");
        graph.launch(gpu_->compute());
        EXPECT_TRUE(same_bits(down(y, DType::f32, size_t(rows * n)),
                              multiply(*s, input, rows, matrix, mode)));
      }
    }
}

TEST_F(MatmulParts, NothingTimesNothingIsNothing) {
  const auto s = stream(DType::bf16);
  std::mt19937 random(10);
  const Weights none = reference::random_weights(DType::q8_0, 0, 64, random);
  const Matrix matrix = reference::pack(*s, 0, {&none});
  EXPECT_TRUE(multiply(*s, std::vector<float>(3 * 64), 3, matrix, ActivationMode::native).empty());
  const Weights some = reference::random_weights(DType::q8_0, 5, 64, random);
  EXPECT_TRUE(multiply(*s, {}, 0, reference::pack(*s, 0, {&some}), ActivationMode::native).empty());
}

}  // namespace
}  // namespace cohort
