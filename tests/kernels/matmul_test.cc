// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/ops.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/streams.h"

namespace cohort {
namespace {

using reference::Weights;

std::vector<float> run(Stream& stream, const std::vector<float>& x, int64_t rows, const Matrix& w,
                       ActivationMode mode, std::vector<UnitRange> pieces = {}) {
  if (pieces.empty()) pieces.push_back({0, w.units()});
  Activations activations(stream, rows, w.columns(), mode);
  ops::prepare(stream, activations, Tensor(x.data(), DType::f32, {rows, w.columns()}));
  std::vector<float> y(pieces.size() * size_t(rows * w.rows()), -7.0f);
  ops::matmul(stream, Tensor(y.data(), DType::f32, {int64_t(pieces.size()), rows, w.rows()}),
              activations, w, pieces);
  return y;
}

class MatmulOfType : public testing::TestWithParam<std::tuple<DType, Isa>> {
 protected:
  void SetUp() override {
    if (!supported(isa())) GTEST_SKIP() << "this processor has no " << name(isa());
  }
  DType type() const { return std::get<0>(GetParam()); }
  Isa isa() const { return std::get<1>(GetParam()); }
};

TEST_P(MatmulOfType, IsCloseToDoublePrecision) {
  std::mt19937 random(1);
  Stream stream(2, isa());
  for (ActivationMode mode : {ActivationMode::f32, ActivationMode::int8})
    for (int64_t unit : {0, 256}) {
      const int64_t rows = 5, columns = 768;
      const Weights w = reference::random_weights(type(), 37, columns, random);
      const std::vector<float> x = reference::random_floats(rows * columns, random);
      const auto expected = reference::matmul(x, rows, w);
      const auto y = run(stream, x, rows, reference::pack(stream, unit, {&w}), mode);
      const auto tolerance = reference::tolerance(type());
      const double relative =
          mode == ActivationMode::f32 ? tolerance.f32_activations : tolerance.int8_activations;
      for (size_t i = 0; i < y.size(); i++)
        ASSERT_NEAR(y[i], expected.y[i], relative * expected.magnitude[i]) << i;
    }
}

// Activations that int8 represents exactly leave nothing but f32 rounding.
TEST_P(MatmulOfType, IsExactToRoundingWhereActivationsAreIntegers) {
  std::mt19937 random(2);
  Stream stream(1, isa());
  const int64_t rows = 3, columns = 512;
  const Weights w = reference::random_weights(type(), 19, columns, random);
  std::vector<float> x(size_t(rows * columns));
  for (size_t i = 0; i < x.size(); i++)
    x[i] = i % 32 == 5 ? 127.0f : float(int(random() % 255) - 127);
  const auto expected = reference::matmul(x, rows, w);
  const auto y = run(stream, x, rows, reference::pack(stream, 0, {&w}), ActivationMode::int8);
  for (size_t i = 0; i < y.size(); i++)
    ASSERT_NEAR(y[i], expected.y[i],
                reference::tolerance(type()).f32_activations * expected.magnitude[i]);
}

// E11: a row's result does not depend on its company, the threads or the instruction set.
TEST_P(MatmulOfType, E11_SameBitsForAnyRowsThreadsAndIsa) {
  std::mt19937 random(3);
  for (ActivationMode mode : {ActivationMode::f32, ActivationMode::int8})
    for (int64_t unit : {0, 256}) {
      const int64_t rows = 130, columns = 768, n = 53;
      const Weights a = reference::random_weights(type(), n, columns, random);
      const Weights b = reference::random_weights(DType::q8_0, 16, columns, random);
      const std::vector<float> x = reference::random_floats(rows * columns, random);
      Stream plain(1, Isa::portable);
      const Matrix w = reference::pack(plain, unit, {&a, &b});
      const auto expected = run(plain, x, rows, w, mode);
      for (int threads : {1, 2, 3}) {
        Stream stream(threads, isa());
        ASSERT_TRUE(same_bits(run(stream, x, rows, w, mode), expected)) << threads;
      }
      Stream stream(1, isa());
      for (int64_t count : {1, 2, 3, 4, 5, 7, 8, 9, 11, 13, 16, 17, 33, 96})
        ASSERT_TRUE(same_bits(
            run(stream, std::vector<float>(x.begin(), x.begin() + count * columns), count, w, mode),
            std::vector<float>(expected.begin(), expected.begin() + count * w.rows())))
            << count;
    }
}

// Panels long enough for more than one to be read at a time, in odd and even numbers.
TEST_P(MatmulOfType, E11_SameBitsForLongPanels) {
  std::mt19937 random(9);
  const int64_t columns = 4096, n = 77;
  const Weights a = reference::random_weights(type(), n, columns, random);
  const std::vector<float> x = reference::random_floats(2 * columns, random);
  Stream plain(1, Isa::portable);
  for (int64_t unit : {0, 512}) {
    const Matrix w = reference::pack(plain, unit, {&a});
    for (int64_t rows : {1, 2}) {
      const std::vector<float> some(x.begin(), x.begin() + rows * columns);
      const auto expected = run(plain, some, rows, w, ActivationMode::int8);
      for (int threads : {1, 2}) {
        Stream stream(threads, isa());
        ASSERT_TRUE(same_bits(run(stream, some, rows, w, ActivationMode::int8), expected));
      }
    }
  }
}

// One rank's product: its units [first, first + count) of every row, summed by pieces.
std::vector<std::vector<float>> pieces_of(Stream& stream, const Weights& w, int64_t unit, int first,
                                          int count, const std::vector<float>& x, int64_t rows,
                                          const std::vector<UnitRange>& plan, ActivationMode mode) {
  const int64_t columns = count * unit;
  Weights mine{w.type, w.rows, columns, {}, {}};
  std::vector<float> own_x;
  for (int64_t r = 0; r < w.rows; r++) {
    const auto row = w.stored.begin() + r * bytes_of(w.type, w.columns);
    mine.stored.insert(mine.stored.end(), row + bytes_of(w.type, first * unit),
                       row + bytes_of(w.type, (first + count) * unit));
  }
  for (int64_t r = 0; r < rows; r++) {
    const auto row = x.begin() + r * w.columns + first * unit;
    own_x.insert(own_x.end(), row, row + columns);
  }
  std::vector<UnitRange> pieces;
  for (UnitRange p : plan) pieces.push_back({p.begin - first, p.end - first});
  const auto y = run(stream, own_x, rows, reference::pack(stream, unit, {&mine}), mode, pieces);
  std::vector<std::vector<float>> out;
  for (size_t p = 0; p < pieces.size(); p++)
    out.emplace_back(y.begin() + int64_t(p) * rows * w.rows,
                     y.begin() + (int64_t(p) + 1) * rows * w.rows);
  return out;
}

// E11: the ranks' pieces, added in tree order, are the whole product for every uneven split.
TEST_P(MatmulOfType, E11_PiecesAddUpToTheWholeForUnevenSplits) {
  std::mt19937 random(4);
  Stream stream(2, isa());
  const int64_t unit = 256, n = 21;
  const int units = 7;
  const Weights w = reference::random_weights(type(), n, unit * units, random);
  for (int64_t rows : {3, 70})
    for (ActivationMode mode : {ActivationMode::f32, ActivationMode::int8}) {
      const std::vector<float> x = reference::random_floats(rows * unit * units, random);
      const auto whole = run(stream, x, rows, reference::pack(stream, unit, {&w}), mode);
      for (int cut = 0; cut <= units; cut++) {
        if (rows > 3 && cut != 3) continue;  // many rows: how work is shared differs, once
        const TreePlan plan(units, {{0, cut}, {cut, units}});
        std::vector<std::vector<float>> sums;
        for (int rank = 0; rank < 2; rank++) {
          const int first = rank == 0 ? 0 : cut, count = rank == 0 ? cut : units - cut;
          if (count == 0) continue;
          for (auto& sum :
               pieces_of(stream, w, unit, first, count, x, rows, plan.pieces(rank), mode))
            sums.push_back(std::move(sum));
        }
        std::vector<float*> pointers;
        for (auto& s : sums) pointers.push_back(s.data());
        plan.add_up(pointers.data(), rows * n);
        ASSERT_TRUE(same_bits(sums[0], whole)) << "cut at " << cut;
      }
    }
}

TEST_P(MatmulOfType, NanAndInfinityStayInTheirRow) {
  std::mt19937 random(5);
  Stream stream(2, isa());
  const int64_t rows = 21, columns = 512, n = 20;
  const Weights w = reference::random_weights(type(), n, columns, random);
  const Matrix matrix = reference::pack(stream, 0, {&w});
  for (ActivationMode mode : {ActivationMode::f32, ActivationMode::int8})
    for (float poison :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      std::vector<float> x = reference::random_floats(rows * columns, random);
      const auto clean = run(stream, x, rows, matrix, mode);
      for (int64_t r : {2, 15, 19}) x[size_t(r * columns + 77)] = poison;
      const auto y = run(stream, x, rows, matrix, mode);
      for (int64_t r = 0; r < rows; r++)
        for (int64_t i = r * n; i < (r + 1) * n; i++) {
          if (r == 2 || r == 15 || r == 19)
            EXPECT_FALSE(std::isfinite(y[size_t(i)]));
          else
            EXPECT_EQ(y[size_t(i)], clean[size_t(i)]);
        }
    }
}

std::string type_name(const testing::TestParamInfo<std::tuple<DType, Isa>>& info) {
  return std::string(name(std::get<0>(info.param))) + "_" +
         std::string(name(std::get<1>(info.param)));
}
INSTANTIATE_TEST_SUITE_P(All, MatmulOfType,
                         testing::Combine(testing::ValuesIn(reference::weight_types()),
                                          testing::ValuesIn(kIsas)),
                         type_name);

TEST(Matmul, TinyBlocksCountAsZeroAndExtremesStayFinite) {
  std::mt19937 random(6);
  const Weights w = reference::random_weights(DType::q4_0, 16, 64, random);
  for (Isa isa : isas()) {
    Stream stream(1, isa);
    const Matrix matrix = reference::pack(stream, 0, {&w});
    for (float value : {0.0f, -0.0f, 1e-38f, 1e-44f, 0x1p-101f})
      for (float y : run(stream, std::vector<float>(64, value), 1, matrix, ActivationMode::int8))
        EXPECT_EQ(y, 0);
    for (float y : run(stream, std::vector<float>(64, 1e37f), 1, matrix, ActivationMode::int8))
      EXPECT_TRUE(std::isfinite(y));
  }
}

TEST(Matmul, PlainWeightsTakeAnyWidth) {
  std::mt19937 random(7);
  for (Isa isa : isas())
    for (DType type : {DType::f32, DType::f16, DType::bf16}) {
      Stream stream(2, isa);
      const Weights w = reference::random_weights(type, 5, 27, random);
      const auto x = reference::random_floats(4 * 27, random);
      const auto expected = reference::matmul(x, 4, w);
      const auto y = run(stream, x, 4, reference::pack(stream, 9, {&w}), ActivationMode::int8);
      for (size_t i = 0; i < y.size(); i++)
        ASSERT_NEAR(y[i], expected.y[i], 2e-6 * expected.magnitude[i]);
    }
}

TEST(Matmul, EmptyShardsComputeNothing) {
  Stream stream(2, Isa::portable);
  Matrix w(64, 0);
  ASSERT_TRUE(w.add_part(stream, DType::q8_0, 0, [](int64_t, int64_t, std::byte*) {
                 return internal_error("nothing to read");
               }).ok());
  EXPECT_TRUE(run(stream, std::vector<float>(64), 1, w, ActivationMode::int8).empty());
}

TEST(MatrixErrors, SayWhatIsWrong) {
  Stream stream(1, Isa::portable);
  const auto read = [](int64_t, int64_t, std::byte*) { return Status(); };
  Matrix odd(100, 0);
  EXPECT_THAT(odd.add_part(stream, DType::q8_0, 16, read).message(),
              testing::HasSubstr("whole blocks"));
  Matrix units(96, 48);
  EXPECT_THAT(units.add_part(stream, DType::q8_0, 16, read).message(),
              testing::HasSubstr("units of 48"));
  Matrix uneven(100, 64);
  EXPECT_THAT(uneven.add_part(stream, DType::f32, 16, read).message(),
              testing::HasSubstr("whole number of units"));
  Matrix tiny_units(2048, 1);
  EXPECT_THAT(tiny_units.add_part(stream, DType::f32, 16, read).message(),
              testing::HasSubstr("larger units"));
  Matrix integers(64, 0);
  EXPECT_THAT(integers.add_part(stream, DType::i32, 16, read).message(),
              testing::HasSubstr("not supported"));
  Matrix broken(64, 0);
  const Status status = broken.add_part(
      stream, DType::f32, 16, [](int64_t, int64_t, std::byte*) { return data_loss("file ends"); });
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_TRUE(broken.parts().empty());
}

TEST(Embedding, LooksUpEveryTypeAndTurnsMinusZeroIntoZero) {
  std::mt19937 random(8);
  Stream stream(2, Isa::portable);
  for (DType type : reference::weight_types()) {
    const int64_t rows = 35, columns = 256, first = 100;
    Weights w = reference::random_weights(type, rows, columns, random);
    if (type == DType::f32) {
      const float minus_zero = -0.0f;
      std::memcpy(w.stored.data(), &minus_zero, 4);
      w.values[0] = minus_zero;
    }
    const Matrix table = reference::pack(stream, 0, {&w});
    const std::vector<int32_t> ids = {100, 134, 99, 135, 117, 100, -5};
    std::vector<float> out(ids.size() * columns, 3);
    ops::embedding(stream, Tensor(out.data(), DType::f32, {int64_t(ids.size()), columns}), table,
                   Tensor(ids.data(), DType::i32, {int64_t(ids.size())}), first);
    for (size_t t = 0; t < ids.size(); t++)
      for (int64_t i = 0; i < columns; i++) {
        const int64_t row = ids[t] - first;
        const float got = out[t * size_t(columns) + size_t(i)];
        EXPECT_EQ(got, row >= 0 && row < rows ? w.values[size_t(row * columns + i)] : 0);
        EXPECT_FALSE(got == 0 && std::signbit(got));
      }
  }
}

}  // namespace
}  // namespace cohort
