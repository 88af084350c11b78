// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/ops.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/streams.h"

namespace cohort {
namespace {

using reference::Weights;

constexpr float kUntouched = -7;

// Groups of rows that are none, few, many, and none again, at odd places of tiles of 16.
const std::vector<int32_t> kOffsets = {0, 0, 1, 3, 3, 10, 27, 67, 67, 69, 85, 85};
constexpr int64_t kRows = 85, kSpare = 4;  // rows of x past the last offset

struct Group {
  std::vector<std::vector<Weights>> weights;  // parts of each matrix
  MatrixGroup matrices;
  int64_t outputs = 0;
};

// types: of the parts of every matrix, of rows[i] rows.
Group random_group(int size, const std::vector<DType>& types, const std::vector<int64_t>& rows,
                   int64_t columns, std::mt19937& random) {
  Stream stream(1, Isa::portable);
  Group out;
  for (int g = 0; g < size; g++) {
    std::vector<Weights> parts;
    std::vector<const Weights*> pointers;
    for (size_t i = 0; i < types.size(); i++)
      parts.push_back(reference::random_weights(types[i], rows[i], columns, random));
    for (const Weights& part : parts) pointers.push_back(&part);
    out.matrices.matrices.push_back(reference::pack(stream, 0, pointers));
    out.weights.push_back(std::move(parts));
  }
  prepare_group(stream, out.matrices);
  out.outputs = out.matrices.rows();
  return out;
}

std::vector<float> run(Stream& stream, const std::vector<float>& x, const Group& group,
                       const std::vector<int32_t>& offsets, ActivationMode mode) {
  const int64_t columns = group.matrices.columns(), rows = int64_t(x.size()) / columns;
  Activations scratch(stream, rows, columns, mode);
  std::vector<float> y(size_t(rows * group.outputs), kUntouched);
  ops::grouped_matmul(stream, Tensor(y.data(), DType::f32, {rows, group.outputs}),
                      Tensor(x.data(), DType::f32, {rows, columns}), group.matrices,
                      Tensor(offsets.data(), DType::i32, {int64_t(offsets.size())}), scratch);
  return y;
}

// What an ordinary product gives for the rows of each group alone.
std::vector<float> alone(const std::vector<float>& x, const Group& group, ActivationMode mode) {
  Stream stream(1, Isa::portable);
  const int64_t columns = group.matrices.columns();
  std::vector<float> y(x.size() / size_t(columns) * size_t(group.outputs), kUntouched);
  for (size_t g = 0; g + 1 < kOffsets.size(); g++) {
    const int64_t begin = kOffsets[g], rows = kOffsets[g + 1] - begin;
    const Matrix& w = group.matrices.matrices[g];
    Activations activations(stream, rows, columns, mode);
    ops::prepare(stream, activations,
                 Tensor(x.data() + begin * columns, DType::f32, {rows, columns}));
    const UnitRange whole{0, 1};
    ops::matmul(stream,
                Tensor(y.data() + begin * group.outputs, DType::f32, {1, rows, group.outputs}),
                activations, w, {&whole, 1});
  }
  return y;
}

class GroupedMatmulOfType : public testing::TestWithParam<DType> {};

TEST_P(GroupedMatmulOfType, IsTheProductOfEachGroupAloneForAnyThreadsAndIsa) {
  std::mt19937 random(1);
  const Group group =
      random_group(int(kOffsets.size()) - 1, {GetParam(), DType::q8_0}, {37, 19}, 256, random);
  const auto x = reference::random_floats((kRows + kSpare) * 256, random);
  for (ActivationMode mode : {ActivationMode::f32, ActivationMode::int8}) {
    const auto expected = alone(x, group, mode);
    for (Isa isa : isas())
      for (int threads : {1, 3}) {
        Stream stream(threads, isa);
        ASSERT_TRUE(same_bits(run(stream, x, group, kOffsets, mode), expected))
            << name(isa) << " " << threads;
      }
  }
}

TEST_P(GroupedMatmulOfType, IsCloseToDoublePrecision) {
  std::mt19937 random(2);
  const int64_t columns = 512;
  const Group group = random_group(3, {GetParam()}, {40}, columns, random);
  const std::vector<int32_t> offsets = {0, 2, 2, 7};
  const auto x = reference::random_floats(7 * columns, random);
  Stream stream(2, detect_isa());
  for (ActivationMode mode : {ActivationMode::f32, ActivationMode::int8}) {
    const auto y = run(stream, x, group, offsets, mode);
    const auto tolerance = reference::tolerance(GetParam());
    const double relative =
        mode == ActivationMode::f32 ? tolerance.f32_activations : tolerance.int8_activations;
    for (int64_t row = 0; row < 7; row++) {
      const Weights& w = group.weights[row < 2 ? 0 : 2][0];
      const auto expected = reference::matmul(
          std::vector<float>(x.begin() + row * columns, x.begin() + (row + 1) * columns), 1, w);
      for (size_t i = 0; i < 40; i++)
        ASSERT_NEAR(y[size_t(row) * 40 + i], expected.y[i], relative * expected.magnitude[i]);
    }
  }
}

std::string type_name(const testing::TestParamInfo<DType>& info) {
  return std::string(name(info.param));
}
INSTANTIATE_TEST_SUITE_P(All, GroupedMatmulOfType, testing::ValuesIn(reference::weight_types()),
                         type_name);

// Many panels and parts of one item or many, so that threads meet in every group.
TEST(GroupedMatmul, SharesLargeMatricesAmongThreads) {
  std::mt19937 random(3);
  const Group group =
      random_group(int(kOffsets.size()) - 1, {DType::q4_0, DType::bf16}, {400, 210}, 1024, random);
  const auto x = reference::random_floats(kRows * 1024, random);
  const auto expected = alone(x, group, ActivationMode::int8);
  Stream stream(4, detect_isa());
  for (int i = 0; i < 3; i++)
    ASSERT_TRUE(same_bits(run(stream, x, group, kOffsets, ActivationMode::int8), expected));
}

TEST(GroupedMatmul, PlainWeightsTakeAnyWidth) {
  std::mt19937 random(4);
  const Group group = random_group(int(kOffsets.size()) - 1, {DType::f16}, {21}, 27, random);
  const auto x = reference::random_floats(kRows * 27, random);
  for (Isa isa : isas()) {
    Stream stream(2, isa);
    EXPECT_TRUE(same_bits(run(stream, x, group, kOffsets, ActivationMode::int8),
                          alone(x, group, ActivationMode::int8)));
  }
}

// Panels that are long enough to be read two at a time meet single rows in the midst of tiles.
TEST(GroupedMatmul, SingleRowsMeetLongPanels) {
  std::mt19937 random(8);
  const int64_t columns = 2048;
  for (DType type : {DType::q8_0, DType::q6_k, DType::bf16}) {
    const Group group = random_group(int(kOffsets.size()) - 1, {type}, {77}, columns, random);
    const auto x = reference::random_floats(kRows * columns, random);
    const auto expected = alone(x, group, ActivationMode::int8);
    for (Isa isa : isas()) {
      Stream stream(2, isa);
      EXPECT_TRUE(same_bits(run(stream, x, group, kOffsets, ActivationMode::int8), expected))
          << name(type) << " " << name(isa);
    }
  }
}

TEST(GroupedMatmul, NanStaysInItsRow) {
  std::mt19937 random(5);
  const Group group = random_group(2, {DType::q4_k}, {20}, 256, random);
  auto x = reference::random_floats(6 * 256, random);
  Stream stream(2, detect_isa());
  const std::vector<int32_t> offsets = {0, 3, 6};
  const auto clean = run(stream, x, group, offsets, ActivationMode::int8);
  x[2 * 256 + 9] = std::numeric_limits<float>::quiet_NaN();
  const auto y = run(stream, x, group, offsets, ActivationMode::int8);
  for (size_t i = 0; i < y.size(); i++) {
    if (i / 20 == 2)
      EXPECT_TRUE(std::isnan(y[i]));
    else
      EXPECT_EQ(y[i], clean[i]);
  }
}

TEST(GroupedMatmul, NoRowsAndNoGroupsAreFine) {
  std::mt19937 random(6);
  const Group group = random_group(2, {DType::q8_0}, {20}, 64, random);
  Stream stream(2, detect_isa());
  EXPECT_TRUE(run(stream, {}, group, {0, 0, 0}, ActivationMode::int8).empty());
  const auto untouched =
      run(stream, std::vector<float>(64, 1.0f), group, {0, 0, 0}, ActivationMode::int8);
  EXPECT_EQ(untouched, std::vector<float>(20, kUntouched));
  Activations scratch(stream, 0, 0, ActivationMode::int8);
  const int32_t offset = 0;
  const Tensor none(static_cast<void*>(nullptr), DType::f32, {0, 0});
  ops::grouped_matmul(stream, none, none, MatrixGroup(), Tensor(&offset, DType::i32, {1}), scratch);
}

}  // namespace
}  // namespace cohort
