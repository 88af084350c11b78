// SPDX-License-Identifier: Apache-2.0
// ActivationMode::bf16 (docs/arithmetic.md section 9), against a tile unit made of doubles.
#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "kernels/ops.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/streams.h"
#include "tests/kernels/tile_unit.h"

namespace cohort {
namespace {

using namespace tile_unit;
using reference::Weights;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// ---- the tile unit
// -------------------------------------------------------------------------------

// [rows, w.rows]
std::vector<float> tile_unit(const std::vector<float>& x, int64_t rows, const Weights& w,
                             int64_t unit) {
  std::vector<float> y;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t n = 0; n < w.rows; n++) {
      std::vector<float> sums;
      for (int64_t k = 0; k < w.columns; k += unit) {
        const std::vector<float> own_w(&w.values[size_t(n * w.columns + k)],
                                       &w.values[size_t(n * w.columns + k)] + unit);
        sums.push_back(tile_sum(own_w.data(), &x[size_t(r * w.columns + k)], unit));
      }
      for (; sums.size() > 1;) {  // the tree, whose additions are ordinary ones
        for (size_t i = 0; i < sums.size(); i += 2)
          sums[i / 2] = i + 1 < sums.size() ? sums[i] + sums[i + 1] : sums[i];
        sums.resize((sums.size() + 1) / 2);
      }
      y.push_back(sums[0]);
    }
  return y;
}

// ---- what is multiplied
// --------------------------------------------------------------------------

Weights weights(int64_t rows, int64_t columns, const std::vector<float>& values) {
  Weights w{DType::bf16, rows, columns, {}, {}};
  for (const float value : values) {
    const uint16_t bits = float_to_bf16(value);
    w.stored.push_back(std::byte(bits & 255));
    w.stored.push_back(std::byte(bits >> 8));
    w.values.push_back(bf16_to_float(bits));
  }
  return w;
}

enum class Kind { ordinary, wide, denormal, vanishing, not_finite };
constexpr Kind kKinds[] = {Kind::ordinary, Kind::wide, Kind::denormal, Kind::vanishing,
                           Kind::not_finite};

std::vector<float> numbers(Kind kind, int64_t n, std::mt19937& random) {
  std::vector<float> out = reference::random_floats(n, random);
  for (float& x : out) {
    const uint32_t draw = random();
    if (kind == Kind::wide) x = std::ldexp(x, int(draw % 60) - 30);
    if (kind == Kind::denormal && draw % 2) x *= 0x1p-128f;
    if (kind == Kind::vanishing) x = std::ldexp(x, -int(draw % 12) - 58);
    if (kind == Kind::not_finite && draw % 128 == 0) x = draw % 512 ? kInfinity : kNan;
    if (kind == Kind::not_finite && draw % 128 == 1) x = std::ldexp(x, 126);
  }
  return out;
}

std::vector<float> run(Stream& stream, const std::vector<float>& x, int64_t rows, const Matrix& w,
                       ActivationMode mode = ActivationMode::bf16,
                       std::vector<UnitRange> pieces = {}) {
  if (pieces.empty()) pieces.push_back({0, w.units()});
  Activations activations(stream, rows, w.columns(), mode);
  ops::prepare(stream, activations, Tensor(x.data(), DType::f32, {rows, w.columns()}));
  std::vector<float> y(pieces.size() * size_t(rows * w.rows()), -7.0f);
  ops::matmul(stream, Tensor(y.data(), DType::f32, {int64_t(pieces.size()), rows, w.rows()}),
              activations, w, pieces);
  return y;
}

std::vector<float> head(const std::vector<float>& x, int64_t n) {
  return {x.begin(), x.begin() + n};
}

class Bf16 : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!supported(GetParam())) GTEST_SKIP() << "this processor has no " << name(GetParam());
  }
};

INSTANTIATE_TEST_SUITE_P(All, Bf16, testing::ValuesIn(kIsas),
                         [](const auto& info) { return std::string(name(info.param)); });

// ---- tests
// ---------------------------------------------------------------------------------------

struct Shape {
  int64_t outputs, columns, unit;
};

TEST_P(Bf16, GivesTheBitsOfATileUnit) {
  std::mt19937 random(1);
  Stream stream(2, GetParam());
  const int64_t rows = 19;
  for (const Shape& s : {Shape{37, 768, 768}, Shape{53, 288, 96}, Shape{16, 100, 50},
                         Shape{5, 27, 9}, Shape{130, 64, 2}, Shape{1, 62, 62}})
    for (const Kind kind : kKinds) {
      const auto values = numbers(kind, s.outputs * s.columns, random);
      const Weights w = weights(s.outputs, s.columns, values);
      const auto x = numbers(kind, rows * s.columns, random);
      const Matrix matrix = reference::pack(stream, s.unit, {&w});
      ASSERT_TRUE(same_bits(run(stream, x, rows, matrix), tile_unit(x, rows, w, s.unit)))
          << s.columns << " columns, kind " << int(kind);
    }
}

// An odd number of columns: the even chain has one more.
TEST_P(Bf16, ABlockMayEndWithOneColumn) {
  std::mt19937 random(2);
  Stream stream(1, GetParam());
  for (const int64_t columns : {1, 31, 33, 63}) {
    const Weights w = weights(21, columns, numbers(Kind::ordinary, 21 * columns, random));
    const auto x = numbers(Kind::ordinary, 3 * columns, random);
    ASSERT_TRUE(same_bits(run(stream, x, 3, reference::pack(stream, 0, {&w})),
                          tile_unit(x, 3, w, columns)));
  }
}

TEST_P(Bf16, IsCloseToDoublePrecision) {
  std::mt19937 random(3);
  Stream stream(2, GetParam());
  const int64_t rows = 5, columns = 1536;
  const Weights w = weights(40, columns, reference::random_floats(40 * columns, random));
  const auto x = reference::random_floats(rows * columns, random);
  std::vector<float> x_bf16 = x;
  for (float& v : x_bf16) v = rounded_to_bf16(v);
  const auto y = run(stream, x, rows, reference::pack(stream, 96, {&w}));
  const auto of_rounded = reference::matmul(x_bf16, rows, w),
             of_all = reference::matmul(x, rows, w);
  for (size_t i = 0; i < y.size(); i++) {
    ASSERT_NEAR(y[i], of_rounded.y[i],
                reference::tolerance(DType::bf16).f32_activations * of_rounded.magnitude[i]);
    ASSERT_NEAR(y[i], of_all.y[i], (0x1p-8 + 2e-6) * of_all.magnitude[i]);
  }
}

// E11: a row's result does not depend on its company, the threads or the instruction set.
TEST_P(Bf16, E11_SameBitsForAnyRowsAndThreads) {
  std::mt19937 random(4);
  Stream plain(1, Isa::portable);
  const int64_t rows = 33, columns = 384;
  const Weights a = weights(150, columns, numbers(Kind::wide, 150 * columns, random));
  const Weights b = reference::random_weights(DType::q8_0, 40, columns, random);
  const Weights c = reference::random_weights(DType::f16, 40, columns, random);
  const auto x = numbers(Kind::wide, rows * columns, random);
  for (const int64_t unit : {0, 96}) {
    const Matrix w = reference::pack(plain, unit, {&a, &b, &c});
    const auto expected = run(plain, x, rows, w);
    for (const int threads : {1, 2, 3}) {
      Stream stream(threads, GetParam());
      for (const int64_t count : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 33})
        ASSERT_TRUE(same_bits(run(stream, head(x, count * columns), count, w),
                              head(expected, count * w.rows())))
            << count << " rows, " << threads << " threads";
    }
  }
}

TEST_P(Bf16, OtherWeightsAreMultipliedAsInInt8Mode) {
  std::mt19937 random(5);
  Stream stream(2, GetParam());
  for (const DType type : reference::weight_types()) {
    if (type == DType::bf16) continue;
    const Weights w = reference::random_weights(type, 20, 512, random);
    const auto x = reference::random_floats(3 * 512, random);
    const Matrix matrix = reference::pack(stream, 0, {&w});
    EXPECT_TRUE(
        same_bits(run(stream, x, 3, matrix), run(stream, x, 3, matrix, ActivationMode::int8)))
        << name(type);
  }
}

// E11: the ranks' pieces, added in tree order by ordinary additions, are the whole product, even
// where unit sums cancel so far that their sum is a denormal.
TEST_P(Bf16, E11_PiecesAddUpToTheWholeForUnevenSplits) {
  std::mt19937 random(6);
  Stream stream(2, GetParam());
  const int64_t rows = 3, unit = 64, n = 150;
  const int units = 7;
  auto values = numbers(Kind::ordinary, n * unit * units, random);
  for (float& v : values) v *= 0x1p-64f;
  auto x = numbers(Kind::ordinary, rows * unit * units, random);
  for (float& v : x) v *= 0x1p-61f;
  const Weights w = weights(n, unit * units, values);
  const Matrix matrix = reference::pack(stream, unit, {&w});
  const auto whole = run(stream, x, rows, matrix);
  ASSERT_TRUE(same_bits(whole, tile_unit(x, rows, w, unit)));
  int denormals = 0;
  for (const float y : whole) denormals += std::fpclassify(y) == FP_SUBNORMAL;
  EXPECT_GT(denormals, 0);
  for (int cut = 1; cut < units; cut++) {
    const TreePlan plan(units, {{0, cut}, {cut, units}});
    std::vector<UnitRange> pieces = plan.pieces(0);
    for (const UnitRange& piece : plan.pieces(1)) pieces.push_back(piece);
    auto sums = run(stream, x, rows, matrix, ActivationMode::bf16, pieces);
    std::vector<float*> pointers;
    for (size_t p = 0; p < pieces.size(); p++) pointers.push_back(&sums[p * size_t(rows * n)]);
    plan.add_up(pointers.data(), rows * n);
    ASSERT_TRUE(same_bits(head(sums, rows * n), whole)) << "cut at " << cut;
  }
}

// 2^-126 - 2^-150 is tiny, though it is rounded to 2^-126 where denormals exist; from 2^-126 -
// 2^-151 on 24 bits suffice for 2^-126.
TEST_P(Bf16, WhatIsTinyIsDecidedBeforeBitsAreLostToDenormals) {
  Stream stream(1, GetParam());
  const auto difference = [&](float less) {
    const Weights w = weights(1, 4, {0x1p-63f, 0, -0x1p-63f, 0});
    return run(stream, {0x1p-63f, 0, less, 0}, 1, reference::pack(stream, 0, {&w}))[0];
  };
  EXPECT_EQ(difference(0), 0x1p-126f);
  EXPECT_EQ(difference(0x1p-87f), 0);
  EXPECT_EQ(difference(0x1p-88f), 0x1p-126f);
  EXPECT_EQ(difference(0x1p-86f), 0);
  EXPECT_EQ(difference(-0x1p-87f), 0x1p-126f) << "the nearest even";
}

TEST_P(Bf16, RoundsRowsToNearestEven) {
  Stream stream(1, GetParam());
  const Weights w = weights(1, 1, {1});
  const Matrix one = reference::pack(stream, 0, {&w});
  const auto through = [&](float x) { return run(stream, {x}, 1, one)[0]; };
  EXPECT_EQ(through(1 + 0x1p-8f), 1);
  EXPECT_EQ(through(1 + 0x1p-8f + 0x1p-23f), 1 + 0x1p-7f);
  EXPECT_EQ(through(1 + 0x3p-8f), 1 + 0x1p-6f);
  EXPECT_EQ(through(-0x1.fffffep-127f), -0x1p-126f);
  EXPECT_EQ(through(0x1p-127f), 0);
  EXPECT_EQ(through(std::numeric_limits<float>::max()), kInfinity);
  EXPECT_EQ(through(0x1.fep127f), 0x1.fep127f);
  EXPECT_TRUE(std::isnan(through(kNan)));
  float least_nan;
  const uint32_t bits = 0x7f800001u;
  std::memcpy(&least_nan, &bits, 4);
  EXPECT_TRUE(std::isnan(through(least_nan)));
}

TEST_P(Bf16, NanAndInfinityStayInTheirRow) {
  std::mt19937 random(7);
  Stream stream(2, GetParam());
  const int64_t rows = 11, columns = 96;
  const Weights w = weights(20, columns, numbers(Kind::ordinary, 20 * columns, random));
  const Matrix matrix = reference::pack(stream, 0, {&w});
  auto x = numbers(Kind::ordinary, rows * columns, random);
  const auto clean = run(stream, x, rows, matrix);
  for (const float poison : {kNan, kInfinity}) {
    x[size_t(5 * columns + 77)] = poison;
    const auto y = run(stream, x, rows, matrix);
    for (size_t i = 0; i < y.size(); i++) {
      if (i / 20 == 5)
        EXPECT_FALSE(std::isfinite(y[i]));
      else
        EXPECT_EQ(y[i], clean[i]);
    }
  }
}

TEST_P(Bf16, LeavesTheModeOfTheProcessorAlone) {
  std::mt19937 random(8);
  Stream stream(1, GetParam());
  const Weights w = weights(16, 64, numbers(Kind::denormal, 16 * 64, random));
  run(stream, numbers(Kind::denormal, 64, random), 1, reference::pack(stream, 0, {&w}));
  volatile float least = std::numeric_limits<float>::min();
  EXPECT_GT(least / 4, 0);
  EXPECT_EQ(std::fegetround(), FE_TONEAREST);
}

TEST_P(Bf16, GroupedRowsAreMultipliedAsIfAlone) {
  std::mt19937 random(9);
  Stream stream(2, GetParam());
  const int64_t columns = 160, n = 52;
  const std::vector<int32_t> offsets = {0, 0, 1, 3, 10, 27, 67};
  MatrixGroup group;
  for (size_t g = 0; g + 1 < offsets.size(); g++) {
    const Weights a = weights(36, columns, numbers(Kind::ordinary, 36 * columns, random));
    const Weights b =
        reference::random_weights(g % 2 ? DType::q8_0 : DType::bf16, 16, columns, random);
    group.matrices.push_back(reference::pack(stream, 0, {&a, &b}));
  }
  prepare_group(stream, group);
  const int64_t rows = offsets.back();
  const auto x = numbers(Kind::ordinary, rows * columns, random);
  std::vector<float> y(size_t(rows * n), -7);
  Activations scratch(stream, rows, columns, ActivationMode::bf16);
  ops::grouped_matmul(stream, Tensor(y.data(), DType::f32, {rows, n}),
                      Tensor(x.data(), DType::f32, {rows, columns}), group,
                      Tensor(offsets.data(), DType::i32, {int64_t(offsets.size())}), scratch);
  for (size_t g = 0; g + 1 < offsets.size(); g++) {
    const int64_t begin = offsets[g], count = offsets[g + 1] - begin;
    if (count == 0) continue;
    const std::vector<float> own(x.begin() + begin * columns, x.begin() + offsets[g + 1] * columns);
    ASSERT_TRUE(same_bits({y.begin() + begin * n, y.begin() + offsets[g + 1] * n},
                          run(stream, own, count, group.matrices[g])))
        << "group " << g;
  }
}

}  // namespace
}  // namespace cohort
