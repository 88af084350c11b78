// SPDX-License-Identifier: Apache-2.0
// The ops around the products of experts. Choosing experts: route_experts_test.cc; the products:
// grouped_matmul_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/ops.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/streams.h"

namespace cohort {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Tensor matrix(std::vector<float>& v, int64_t rows, int64_t columns) {
  return Tensor(v.data(), DType::f32, {rows, columns});
}
Tensor integers(const std::vector<int32_t>& v) {
  return Tensor(v.data(), DType::i32, {int64_t(v.size())});
}
Tensor integers(const std::vector<int32_t>& v, int64_t rows, int64_t columns) {
  return Tensor(v.data(), DType::i32, {rows, columns});
}

// k different numbers below n for each token, ascending.
std::vector<int32_t> random_choice(int64_t tokens, int k, int n, std::mt19937& random) {
  std::vector<int32_t> out, all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  for (int64_t t = 0; t < tokens; t++) {
    std::shuffle(all.begin(), all.end(), random);
    std::sort(all.begin(), all.begin() + k);
    out.insert(out.end(), all.begin(), all.begin() + k);
  }
  return out;
}

// ---- group_tokens, take_rows --------------------------------------------------------------------

TEST(GroupTokens, SortsPairsByLocalExpertAndThenByToken) {
  Stream stream(2, Isa::portable);
  const std::vector<int32_t> experts = {0, 3, 1, 3, 2, 3, 0, 1}, local = {1, -1, -1, 0};
  std::vector<int32_t> offsets(3, 9), rows(8, 9), places(8, 9);
  ops::group_tokens(stream, integers(offsets), integers(rows), integers(places, 4, 2),
                    integers(experts, 4, 2), integers(local));
  EXPECT_EQ(offsets, (std::vector<int32_t>{0, 3, 5}));
  EXPECT_EQ(rows, (std::vector<int32_t>{0, 1, 2, 0, 3, -1, -1, -1}));
  EXPECT_EQ(places, (std::vector<int32_t>{3, 0, -1, 1, -1, 2, 4, -1}));
}

TEST(GroupTokens, RandomPairsComeBackInOrder) {
  std::mt19937 random(1);
  Stream stream(1, Isa::portable);
  for (int round = 0; round < 200; round++) {
    const int n = 1 + int(random() % 40), k = 1 + int(random() % unsigned(n));
    const int64_t tokens = int64_t(random() % 30);
    const auto experts = random_choice(tokens, k, n, random);
    std::vector<int32_t> local(size_t(n), -1), offsets, rows(experts.size()), places(rows);
    int32_t groups = 0;
    for (int32_t& l : local)
      if (random() % 3 > 0) l = groups++;
    std::shuffle(local.begin(), local.end(), random);
    offsets.resize(size_t(groups) + 1);
    ops::group_tokens(stream, integers(offsets), integers(rows), integers(places, tokens, k),
                      integers(experts, tokens, k), integers(local));
    std::vector<int32_t> expected_rows, expected_offsets = {0};
    for (int32_t g = 0; g < groups; g++) {
      for (size_t i = 0; i < experts.size(); i++)
        if (local[size_t(experts[i])] == g) {
          ASSERT_EQ(places[i], int32_t(expected_rows.size()));
          expected_rows.push_back(int32_t(i) / k);
        }
      expected_offsets.push_back(int32_t(expected_rows.size()));
    }
    expected_rows.resize(experts.size(), -1);
    ASSERT_EQ(offsets, expected_offsets);
    ASSERT_EQ(rows, expected_rows);
    for (size_t i = 0; i < experts.size(); i++)
      ASSERT_EQ(places[i] < 0, local[size_t(experts[i])] < 0);
  }
}

TEST(TakeRows, CopiesRowsAndLeavesZerosForNone) {
  for (int threads : {1, 3}) {
    Stream stream(threads, Isa::portable);
    const int64_t width = 5000;  // enough to be shared
    std::vector<float> x(size_t(3 * width)), out(size_t(4 * width), 9.0f);
    for (size_t i = 0; i < x.size(); i++) x[i] = float(i) + 1;
    ops::take_rows(stream, matrix(out, 4, width), matrix(x, 3, width), integers({2, -1, 0, 2}));
    for (int64_t i = 0; i < width; i++) {
      ASSERT_EQ(out[size_t(i)], x[size_t(2 * width + i)]);
      ASSERT_EQ(out[size_t(width + i)], 0);
      ASSERT_EQ(out[size_t(2 * width + i)], x[size_t(i)]);
      ASSERT_EQ(out[size_t(3 * width + i)], x[size_t(2 * width + i)]);
    }
  }
}

// ---- combine_experts ----------------------------------------------------------------------------

struct Chosen {
  int experts, k;
  int64_t tokens, width;
  std::vector<int32_t> numbers;         // [tokens, k]
  std::vector<float> weights, outputs;  // [tokens, k], [tokens * k, width]: pair by pair
};

Chosen random_chosen(std::mt19937& random) {
  Chosen c;
  c.experts = 1 + int(random() % 70);
  c.k = 1 + int(random() % unsigned(std::min(c.experts, 12)));
  c.tokens = 1 + int64_t(random() % 6);
  c.width = random() % 10 == 0 ? 300 : 1 + int64_t(random() % 20);
  c.numbers = random_choice(c.tokens, c.k, c.experts, random);
  c.weights = reference::random_floats(c.tokens * c.k, random);
  c.outputs = reference::random_floats(c.tokens * c.k * c.width, random);
  for (float& x : c.outputs)
    if (random() % 8 == 0) x = random() % 2 ? 0.0f : -0.0f;
  return c;
}

// Of the experts in `owned` alone: others have no place, and no rows of outputs.
std::vector<float> combine(Stream& stream, const Chosen& c, UnitRange owned,
                           const std::vector<UnitRange>& ranges) {
  std::vector<int32_t> places;
  std::vector<float> outputs;
  for (size_t i = 0; i < c.numbers.size(); i++) {
    const bool mine = c.numbers[i] >= owned.begin && c.numbers[i] < owned.end;
    places.push_back(mine ? int32_t(outputs.size() / size_t(c.width)) : -1);
    const auto row = c.outputs.begin() + int64_t(i) * c.width;
    if (mine) outputs.insert(outputs.end(), row, row + c.width);
  }
  std::vector<float> pieces(ranges.size() * size_t(c.tokens * c.width), 9.0f);
  const auto count = int64_t(ranges.size());
  ops::combine_experts(stream, Tensor(pieces.data(), DType::f32, {count, c.tokens, c.width}),
                       matrix(outputs, int64_t(outputs.size()) / c.width, c.width),
                       integers(places, c.tokens, c.k), integers(c.numbers, c.tokens, c.k),
                       Tensor(c.weights.data(), DType::f32, {c.tokens, c.k}), ranges);
  return pieces;
}

TEST(CombineExperts, IsTheTreeAndCloseToDoublePrecision) {
  std::mt19937 random(2);
  Stream stream(1, Isa::portable), threads(3, detect_isa());
  for (int round = 0; round < 300; round++) {
    const Chosen c = random_chosen(random);
    const auto y = combine(stream, c, {0, c.experts}, {{0, c.experts}});
    ASSERT_TRUE(same_bits(combine(threads, c, {0, c.experts}, {{0, c.experts}}), y));
    for (int64_t t = 0; t < c.tokens; t++) {
      std::vector<std::vector<float>> outputs;
      for (int64_t pair = t * c.k; pair < (t + 1) * c.k; pair++)
        outputs.emplace_back(c.outputs.begin() + pair * c.width,
                             c.outputs.begin() + (pair + 1) * c.width);
      const auto slice = [&](const auto& v, int64_t n) {
        return std::decay_t<decltype(v)>(v.begin() + t * n, v.begin() + (t + 1) * n);
      };
      const auto expected =
          reference::combine(c.experts, slice(c.numbers, c.k), outputs, slice(c.weights, c.k));
      const std::vector<float> row = slice(y, c.width);
      ASSERT_TRUE(same_bits(row, expected.tree)) << round;
      for (size_t i = 0; i < row.size(); i++)
        ASSERT_NEAR(row[i], expected.all[i], reference::kElementwise * expected.magnitude[i]);
    }
  }
}

// Who has which experts changes no bit: pieces of any ranks add up to the whole, -0 to -0.
TEST(CombineExperts, PiecesOfAnySplitAddUpToTheWhole) {
  std::mt19937 random(3);
  Stream stream(1, Isa::portable);
  for (int round = 0; round < 3000; round++) {
    const Chosen c = random_chosen(random);
    std::vector<int> cuts = {0, c.experts};
    for (unsigned i = random() % 6; i > 0; i--)
      cuts.push_back(int(random() % unsigned(c.experts + 1)));  // equal ones: a rank with nothing
    std::sort(cuts.begin(), cuts.end());
    std::vector<UnitRange> owned;
    for (size_t i = 0; i + 1 < cuts.size(); i++) owned.push_back({cuts[i], cuts[i + 1]});
    const TreePlan plan(c.experts, owned);
    std::vector<float> pieces;
    for (int rank = 0; rank < plan.ranks(); rank++) {
      const auto mine = combine(stream, c, owned[size_t(rank)], plan.pieces(rank));
      pieces.insert(pieces.end(), mine.begin(), mine.end());
    }
    const int64_t size = c.tokens * c.width;
    std::vector<float*> sums;
    for (int p = 0; p < plan.total_pieces(); p++) sums.push_back(pieces.data() + p * size);
    plan.add_up(sums.data(), size);
    pieces.resize(size_t(size));
    ASSERT_TRUE(same_bits(pieces, combine(stream, c, {0, c.experts}, {{0, c.experts}}))) << round;
  }
}

TEST(CombineExperts, WhereNobodyIsThereIsMinusZero) {
  Stream stream(2, Isa::portable);
  const Chosen c{8, 2, 1, 3, {1, 6}, {2, -1}, {1, 2, -0.0f, 5, 6, 0}};
  const auto y = combine(stream, c, {0, 4}, {{0, 2}, {2, 4}});
  EXPECT_TRUE(same_bits(y, {2, 4, -0.0f, -0.0f, -0.0f, -0.0f}));
  EXPECT_TRUE(same_bits(combine(stream, c, {4, 8}, {{4, 8}}), {-5, -6, -0.0f}));
  EXPECT_TRUE(combine(stream, c, {4, 4}, {}).empty());
}

TEST(CombineExperts, NanStaysInItsToken) {
  std::mt19937 random(4);
  Stream stream(1, Isa::portable);
  Chosen c{8, 2, 2, 3, {1, 6, 0, 1}, {1, 1, 1, 1}, reference::random_floats(12, random)};
  c.outputs[4] = std::numeric_limits<float>::quiet_NaN();
  const auto y = combine(stream, c, {0, 8}, {{0, 8}});
  for (size_t i = 0; i < y.size(); i++) EXPECT_EQ(std::isnan(y[i]), i == 1) << i;
}

// ---- elementwise --------------------------------------------------------------------------------

TEST(GateRows, IsCloseToDoublePrecisionForAnyThreads) {
  std::mt19937 random(5);
  const int64_t rows = 40, n = 613;
  const auto y = reference::random_floats(rows * n, random);
  auto gate = reference::random_floats(rows, random, 8);
  std::vector<float> first;
  for (int threads : {1, 3}) {
    Stream stream(threads, detect_isa());
    std::vector<float> out = y;
    ops::gate_rows(stream, matrix(out, rows, n), matrix(gate, rows, 1));
    if (first.empty()) first = out;
    EXPECT_TRUE(same_bits(out, first));
  }
  for (size_t i = 0; i < y.size(); i++) {
    const double g = gate[i / size_t(n)], expected = reference::sigmoid(g) * double(y[i]);
    const double relative = reference::kElementwise * (1 + std::fabs(g));
    ASSERT_NEAR(first[i], expected, relative * std::fabs(expected));
  }
}

TEST(GateRows, LargeAndInvalidGates) {
  Stream stream(1, Isa::portable);
  std::vector<float> gate = {0,         200,        -200,
                             kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()};
  std::vector<float> y(6, 3.0f);
  ops::gate_rows(stream, matrix(y, 6, 1), matrix(gate, 6, 1));
  EXPECT_TRUE(same_bits(y, {1.5f, 3, 0, 3, 0, gate[5]}));
}

TEST(Add, AddsElementsAndRowsForAnyThreads) {
  std::mt19937 random(6);
  const int64_t rows = 7, n = 3001;
  for (int threads : {1, 3}) {
    Stream stream(threads, detect_isa());
    auto y = reference::random_floats(rows * n, random),
         x = reference::random_floats(rows * n, random);
    const auto before = y, bias = reference::random_floats(n, random);
    ops::add(stream, matrix(y, rows, n), matrix(x, rows, n));
    for (size_t i = 0; i < y.size(); i++) ASSERT_EQ(y[i], before[i] + x[i]);
    const auto sum = y;
    ops::add_bias(stream, matrix(y, rows, n), Tensor(bias.data(), DType::f32, {n}));
    for (size_t i = 0; i < y.size(); i++) ASSERT_EQ(y[i], sum[i] + bias[i % size_t(n)]);
  }
}

TEST(NormHeads, NormsEachHeadAsRmsNormDoesAndTouchesNoOther) {
  std::mt19937 random(7);
  for (int64_t dim : {1, 24, 64, 128}) {
    const int64_t rows = 37, heads = 3, first = 5, width = first + heads * dim + 2;
    const auto x = reference::random_floats(rows * width, random, 3);
    auto weight = reference::random_floats(dim, random);
    const Tensor w(weight.data(), DType::f32, {dim});
    std::vector<float> expected = x;
    Stream one(1, Isa::portable);
    for (int64_t r = 0; r < rows; r++)
      for (int64_t h = 0; h < heads; h++) {
        const size_t at = size_t(r * width + first + h * dim);
        const Tensor head(&expected[at], DType::f32, {1, dim});
        ops::rms_norm(one, head, head, w, 1e-6f);
        const auto close =
            reference::rms_norm(std::span(x).subspan(at, size_t(dim)), weight, double(1e-6f));
        for (size_t i = 0; i < size_t(dim); i++)
          ASSERT_NEAR(expected[at + i], close[i], reference::kElementwise * std::fabs(close[i]));
      }
    for (int threads : {1, 3}) {
      Stream stream(threads, detect_isa());
      std::vector<float> out = x;
      ops::norm_heads(stream, matrix(out, rows, width), first, heads, w, 1e-6f);
      EXPECT_TRUE(same_bits(out, expected));
    }
  }
}

TEST(Experts, NoRowsAreFine) {
  Stream stream(2, Isa::portable);
  std::vector<float> none, weight(8, 1.0f);
  std::vector<int32_t> empty, offsets(3, 9), local = {0, 1, -1};
  ops::group_tokens(stream, integers(offsets), integers(empty), integers(empty, 0, 2),
                    integers(empty, 0, 2), integers(local));
  EXPECT_EQ(offsets, (std::vector<int32_t>{0, 0, 0}));
  ops::take_rows(stream, matrix(none, 0, 8), matrix(weight, 1, 8), integers(empty));
  const UnitRange whole{0, 3};
  ops::combine_experts(stream, Tensor(none.data(), DType::f32, {1, 0, 8}), matrix(none, 0, 8),
                       integers(empty, 0, 2), integers(empty, 0, 2), matrix(none, 0, 2),
                       {&whole, 1});
  ops::gate_rows(stream, matrix(none, 0, 8), matrix(none, 0, 1));
  ops::add(stream, matrix(none, 0, 8), matrix(none, 0, 8));
  ops::add_bias(stream, matrix(none, 0, 8), Tensor(weight.data(), DType::f32, {8}));
  ops::norm_heads(stream, matrix(none, 0, 8), 0, 1, Tensor(weight.data(), DType::f32, {8}), 1e-5f);
  EXPECT_EQ(weight, std::vector<float>(8, 1.0f));
}

}  // namespace
}  // namespace cohort
