// SPDX-License-Identifier: Apache-2.0
// Products of groups of matrices: against double precision, whatever the kernel, and against
// themselves.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/ops.h"
#include "tests/cuda/kernel_fixture.h"

namespace cohort {
namespace {

using reference::Weights;
using test::DeviceArray;

constexpr float kUntouched = -7;

// Groups of no rows, of one, of more than 8, and none again.
const std::vector<int32_t> kOffsets = {0, 0, 1, 4, 4, 15, 15};
constexpr int64_t kRows = 15;
// Rows of x in all, of which the last belong to nobody: for each kernel so many that it is chosen.
constexpr int64_t kLengths[] = {kRows, 60, 100};

struct Group {
  std::vector<std::vector<Weights>> weights;  // parts of each matrix
  MatrixGroup matrices;

  int64_t outputs() const { return matrices.rows(); }
  int64_t columns() const { return matrices.columns(); }
};

class GroupedTest : public test::KernelTest {
 protected:
  // types: of the parts of every matrix, of rows[i] rows.
  Group random_group(Stream& stream, int size, const std::vector<DType>& types,
                     const std::vector<int64_t>& rows, int64_t columns, std::mt19937& random) {
    Group out;
    for (int g = 0; g < size; g++) {
      std::vector<Weights> parts;
      for (size_t i = 0; i < types.size(); i++) {
        parts.push_back(reference::random_weights(types[i], rows[i], columns, random));
        if (!is_quantized(types[i]))
          parts.back().values = test::rounded(stream.activations(), parts.back().values);
      }
      std::vector<const Weights*> pointers;
      for (const Weights& part : parts) pointers.push_back(&part);
      out.matrices.matrices.push_back(reference::pack(stream, 0, pointers));
      out.weights.push_back(std::move(parts));
    }
    prepare_group(stream, out.matrices);
    return out;
  }

  // y [length, outputs]; x [rows, columns] is followed by rows of NaN, which are nobody's.
  std::vector<float> run(Stream& stream, std::vector<float> x, int64_t length, const Group& group,
                         const std::vector<int32_t>& offsets,
                         ActivationMode mode = ActivationMode::native) {
    const int64_t columns = group.columns();
    x.resize(size_t(length * columns), std::numeric_limits<float>::quiet_NaN());
    const DType type = stream.activations();
    const DeviceArray in = array(type, x), places = ints(offsets),
                      y = array(type,
                                std::vector<float>(size_t(length * group.outputs()), kUntouched));
    Activations scratch(stream, length, columns, mode);
    ops::grouped_matmul(stream, Tensor(y.data(), type, {length, group.outputs()}),
                        Tensor(in.data(), type, {length, columns}), group.matrices, places.list(),
                        scratch);
    return y.floats();
  }

  // relative: error of a sum, relative to that of magnitudes.
  static void expect_close(const std::vector<float>& y, const std::vector<float>& x,
                           const Group& group, const std::vector<int32_t>& offsets, DType type,
                           double relative) {
    const int64_t columns = group.columns();
    size_t at = 0;
    for (size_t g = 0; g + 1 < offsets.size(); g++)
      for (int32_t row = offsets[g]; row < offsets[g + 1]; row++) {
        const std::vector<float> xs = test::rounded(
            type, std::vector<float>(x.begin() + row * columns, x.begin() + (row + 1) * columns));
        for (const Weights& part : group.weights[g]) {
          const auto expected = reference::matmul(xs, 1, part);
          for (size_t i = 0; i < expected.y.size(); i++, at++) {
            const reference::Rounding r = reference::rounding(type);
            ASSERT_NEAR(y[at], expected.y[i],
                        relative * expected.magnitude[i] + r.relative * std::fabs(expected.y[i]) +
                            r.absolute)
                << "group " << g << ", row " << row << ", output " << i;
          }
        }
      }
    for (; at < y.size(); at++) ASSERT_EQ(y[at], kUntouched) << "behind the last row";
  }
};

class GroupedOfType : public GroupedTest,
                      public testing::WithParamInterface<std::tuple<DType, DType>> {
 protected:
  DType type() const { return std::get<0>(GetParam()); }
  DType activations() const { return std::get<1>(GetParam()); }
};

TEST_P(GroupedOfType, IsCloseToDoublePrecisionAndOneOrderForEveryKernel) {
  std::mt19937 random(1);
  Stream s = stream(activations());
  for (const int64_t columns : {96, 256}) {
    if (columns % info(type()).block_elements != 0) continue;
    const Group group = random_group(s, int(kOffsets.size()) - 1, {type()}, {45}, columns, random);
    const std::vector<float> x = reference::random_floats(kRows * columns, random);
    std::vector<float> first;
    for (const int64_t length : kLengths) {
      std::vector<float> y = run(s, x, length, group, kOffsets);
      expect_close(y, x, group, kOffsets, activations(),
                   reference::tolerance(type()).f32_activations);
      y.resize(size_t(kRows) * 45);
      if (first.empty()) first = y;
      ASSERT_TRUE(same_bits(y, first)) << length << " rows, " << columns << " columns";
    }
  }
}

TEST_P(GroupedOfType, ARowHasTheSameBitsAloneAndInAGroup) {
  std::mt19937 random(2);
  Stream s = stream(activations());
  const int64_t columns = 512;
  const Group group = random_group(s, 2, {type()}, {33}, columns, random);
  const std::vector<float> x = reference::random_floats(70 * columns, random);
  const std::vector<float> all = run(s, x, 70, group, {0, 0, 70});
  for (const int64_t row : {0, 13, 69}) {
    const std::vector<float> one(x.begin() + row * columns, x.begin() + (row + 1) * columns);
    ASSERT_TRUE(same_bits(run(s, one, 1, group, {0, 0, 1}),
                          {all.begin() + row * 33, all.begin() + (row + 1) * 33}))
        << row;
  }
}

std::string pair_name(const testing::TestParamInfo<std::tuple<DType, DType>>& info) {
  return concat(name(std::get<0>(info.param)), "_times_", name(std::get<1>(info.param)));
}
INSTANTIATE_TEST_SUITE_P(All, GroupedOfType,
                         testing::Combine(testing::ValuesIn(reference::weight_types()),
                                          testing::ValuesIn(test::activation_types())),
                         pair_name);

TEST_F(GroupedTest, TakesThreadsInAnyOrder) {
  std::mt19937 random(3);
  for (const DType type : {DType::bf16, DType::q5_1}) {
    Stream s = stream(DType::bf16);
    const Group group = random_group(s, int(kOffsets.size()) - 1, {type}, {40}, 96, random);
    const std::vector<float> x = reference::random_floats(kRows * 96, random);
    for (const int64_t length : kLengths) {
      const std::vector<float> expected = run(s, x, length, group, kOffsets);
      in_every_order([&] { EXPECT_TRUE(same_bits(run(s, x, length, group, kOffsets), expected)); });
    }
  }
}

// Rows that are not whole blocks, nor multiples of 16 bytes.
TEST_F(GroupedTest, PlainWeightsTakeAnyWidth) {
  std::mt19937 random(4);
  for (const DType type : test::activation_types())
    for (const int64_t columns : {1, 27, 40, 104}) {
      Stream s = stream(type);
      const Group group = random_group(s, int(kOffsets.size()) - 1, {type}, {21}, columns, random);
      const std::vector<float> x = reference::random_floats(kRows * columns, random);
      for (const int64_t length : kLengths)
        expect_close(run(s, x, length, group, kOffsets), x, group, kOffsets, type,
                     reference::tolerance(type).f32_activations);
    }
}

TEST_F(GroupedTest, PartsOfSeveralTypesStandSideBySide) {
  std::mt19937 random(5);
  Stream s = stream(DType::f16);
  const Group group = random_group(s, int(kOffsets.size()) - 1,
                                   {DType::q4_0, DType::q8_0, DType::f16}, {37, 19, 5}, 64, random);
  const std::vector<float> x = reference::random_floats(kRows * 64, random);
  for (const int64_t length : kLengths)
    expect_close(run(s, x, length, group, kOffsets), x, group, kOffsets, DType::f16,
                 reference::tolerance(DType::q4_0).f32_activations);
}

TEST_F(GroupedTest, QuantisedWeightsBecomeF32WhereThatIsAskedFor) {
  std::mt19937 random(6);
  Stream s = stream(DType::bf16);
  const Group group = random_group(s, int(kOffsets.size()) - 1, {DType::q4_k}, {40}, 256, random);
  const std::vector<float> x = reference::random_floats(kRows * 256, random);
  for (const int64_t length : kLengths)
    expect_close(run(s, x, length, group, kOffsets, ActivationMode::f32), x, group, kOffsets,
                 DType::bf16, reference::tolerance(DType::q4_k).f32_activations);
}

// The integers, their scales and the chain over them are the CPU's, whatever the kernel.
TEST_P(GroupedOfType, Int8ActivationsGiveTheBitsOfTheCpu) {
  if (!is_quantized(type())) GTEST_SKIP() << "plain weights multiply activations as they are";
  std::mt19937 random(12);
  Stream s = stream(activations()), cpu(1, Isa::portable);
  const int64_t columns = 512;
  const Group group = random_group(s, int(kOffsets.size()) - 1, {type()}, {37}, columns, random);
  MatrixGroup same;
  for (const std::vector<Weights>& parts : group.weights)
    same.matrices.push_back(reference::pack(cpu, 0, {&parts[0]}));
  const auto x = test::rounded(activations(), reference::random_floats(kRows * columns, random));
  Activations scratch(cpu, kRows, columns, ActivationMode::int8);
  std::vector<float> expected(size_t(kRows) * 37);
  ops::grouped_matmul(cpu, Tensor(expected.data(), DType::f32, {kRows, 37}),
                      Tensor(x.data(), DType::f32, {kRows, columns}), same,
                      Tensor(kOffsets.data(), DType::i32, {int64_t(kOffsets.size())}), scratch);
  expected = test::rounded(activations(), expected);
  for (const int64_t length : kLengths) {
    std::vector<float> y = run(s, x, length, group, kOffsets, ActivationMode::int8);
    y.resize(expected.size());
    ASSERT_TRUE(same_bits(y, expected)) << length << " rows";
  }
}

TEST_F(GroupedTest, NanStaysInItsRow) {
  std::mt19937 random(7);
  for (const DType type : {DType::f16, DType::q4_0}) {
    Stream s = stream(DType::f16);
    const Group group = random_group(s, 2, {type}, {20}, 64, random);
    std::vector<float> x = reference::random_floats(6 * 64, random);
    for (const int64_t length : {6, 40}) {
      const std::vector<float> clean = run(s, x, length, group, {0, 3, 6});
      std::vector<float> bad = x;
      bad[2 * 64 + 9] = std::numeric_limits<float>::quiet_NaN();
      const std::vector<float> y = run(s, bad, length, group, {0, 3, 6});
      for (size_t i = 0; i < y.size(); i++) {
        if (i / 20 == 2)
          EXPECT_TRUE(std::isnan(y[i]));
        else
          EXPECT_EQ(y[i], clean[i]);
      }
    }
  }
}

// Of 300 matrices, 10 with rows: fewer rows than matrices, for which blocks look.
TEST_F(GroupedTest, FewRowsFindTheirMatrices) {
  std::mt19937 random(13);
  std::vector<int32_t> offsets = {0};
  for (int g = 0; g < 300; g++)
    offsets.push_back(offsets.back() + (g % 31 == 30 ? 1 : g == 299 ? 12 : 0));
  for (const auto& [type, activations] :
       {std::pair(DType::bf16, DType::bf16), std::pair(DType::q8_0, DType::f16),
        std::pair(DType::f32, DType::f32)}) {
    Stream s = stream(activations);
    const Group group = random_group(s, 300, {type}, {8}, 32, random);
    const std::vector<float> x = reference::random_floats(offsets.back() * 32, random);
    for (const int64_t length : {21, 299})
      expect_close(run(s, x, length, group, offsets), x, group, offsets, activations,
                   reference::tolerance(type).f32_activations);
  }
}

// A matrix for each of 300: more than the list of tiles takes at a time.
TEST_F(GroupedTest, ManyMatricesHaveTilesOfTheirOwn) {
  std::mt19937 random(8);
  Stream s = stream(DType::bf16);
  const Group group = random_group(s, 300, {DType::bf16}, {8}, 32, random);
  std::vector<int32_t> offsets = {0};
  for (int g = 0; g < 300; g++) offsets.push_back(offsets.back() + (g % 100 == 99 ? 70 : g % 2));
  const std::vector<float> x = reference::random_floats(offsets.back() * 32, random);
  expect_close(run(s, x, 300 * 16 + 1, group, offsets), x, group, offsets, DType::bf16,
               reference::tolerance(DType::bf16).f32_activations);
}

TEST_F(GroupedTest, AReplayedGraphReadsOtherOffsetsAndOtherMatrices) {
  std::mt19937 random(9);
  const int64_t columns = 64;
  for (const int64_t length : {6, 40, 120}) {
    Stream s = stream(DType::f16);
    Group group = random_group(s, 4, {DType::q8_0}, {24}, columns, random);
    const std::vector<float> x = reference::random_floats(length * columns, random);
    const DeviceArray in = array(DType::f16, x);
    DeviceArray offsets = ints({0, 0, 0, 0, 0}), y = zeros(DType::f16, length * 24);
    Activations scratch(s, length, columns, ActivationMode::native);
    const auto multiply = [&] {
      ops::grouped_matmul(s, y.matrix(length), in.matrix(length), group.matrices, offsets.list(),
                          scratch);
    };
    multiply();  // scratch memory has its size from here on
    const CudaGraph graph = CudaGraph::capture(device(), multiply);
    const auto check = [&](const std::vector<int32_t>& to) {
      offsets.set(to);
      y.set(std::vector<float>(size_t(length * 24), kUntouched));
      graph.launch(device().compute());
      expect_close(y.floats(), x, group, to, DType::f16,
                   reference::tolerance(DType::q8_0).f32_activations);
    };
    check({0, 1, 3, 3, 6});
    check({0, 0, 6, 6, 6});
    check({0, 0, 0, 0, 0});
    std::swap(group.matrices.matrices[0], group.matrices.matrices[3]);
    std::swap(group.weights[0], group.weights[3]);
    prepare_group(s, group.matrices);
    check({0, 2, 3, 5, 6});
  }
}

TEST_F(GroupedTest, NoRowsAndNoMatricesAreFine) {
  std::mt19937 random(10);
  Stream s = stream(DType::bf16);
  const Group group = random_group(s, 2, {DType::q8_0}, {20}, 64, random);
  EXPECT_TRUE(run(s, {}, 0, group, {0, 0, 0}).empty());
  EXPECT_EQ(run(s, {}, 1, group, {0, 0, 0}), std::vector<float>(20, kUntouched));
  MatrixGroup none;
  prepare_group(s, none);
  Activations scratch(s, 0, 0, ActivationMode::native);
  const DeviceArray offsets = ints({0});
  const Tensor empty(static_cast<void*>(nullptr), DType::bf16, {0, 0});
  ops::grouped_matmul(s, empty, empty, none, offsets.list(), scratch);
}

TEST_F(GroupedTest, MatricesOfDifferentTypesAreRefused) {
  std::mt19937 random(11);
  Stream s = stream(DType::bf16);
  MatrixGroup group;
  for (const DType type : {DType::q8_0, DType::q4_0}) {
    const Weights w = reference::random_weights(type, 20, 64, random);
    group.matrices.push_back(reference::pack(s, 0, {&w}));
  }
  EXPECT_THROW(prepare_group(s, group), Failure);
}

}  // namespace
}  // namespace cohort
