// SPDX-License-Identifier: Apache-2.0
// From router logits to experts, to rows and back: against the oracle, and bit for bit against the
// CPU where the arithmetic is the same.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/unit_tree.h"
#include "kernels/ops.h"
#include "tests/cuda/kernel_fixture.h"

namespace cohort {
namespace {

using test::DeviceArray;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class ExpertsTest : public test::KernelTest {
 protected:
  Stream stream_ = stream(DType::bf16);
};

// ---- route_experts ----

struct Choice {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

Choice on_cpu(const std::vector<float>& logits, const std::vector<float>& bias,
              const Routing& routing) {
  Stream cpu(1, Isa::portable);
  const int64_t tokens = int64_t(logits.size()) / routing.experts, k = routing.per_token;
  Choice out{std::vector<int32_t>(size_t(tokens * k)), std::vector<float>(size_t(tokens * k))};
  ops::route_experts(cpu, Tensor(out.experts.data(), DType::i32, {tokens, k}),
                     Tensor(out.weights.data(), DType::f32, {tokens, k}),
                     Tensor(logits.data(), DType::f32, {tokens, routing.experts}),
                     bias.empty() ? Tensor() : Tensor(bias.data(), DType::f32, {routing.experts}),
                     routing);
  return out;
}

class RouteTest : public ExpertsTest {
 protected:
  Choice on_gpu(const std::vector<float>& logits, const std::vector<float>& bias,
                const Routing& routing) {
    const int64_t tokens = int64_t(logits.size()) / routing.experts, k = routing.per_token;
    const DeviceArray in = array(DType::f32, logits), b = array(DType::f32, bias),
                      experts = ints(std::vector<int32_t>(size_t(tokens * k), -9)),
                      weights = zeros(DType::f32, tokens * k);
    ops::route_experts(stream_, experts.matrix(tokens), weights.matrix(tokens), in.matrix(tokens),
                       bias.empty() ? Tensor() : b.list(), routing);
    return {experts.ints(), weights.floats()};
  }
  void expect_cpu(const std::vector<float>& logits, const std::vector<float>& bias,
                  const Routing& routing) {
    const Choice got = on_gpu(logits, bias, routing), cpu = on_cpu(logits, bias, routing);
    EXPECT_EQ(got.experts, cpu.experts);
    EXPECT_TRUE(same_bits(got.weights, cpu.weights));
  }
};

std::vector<Routing> routings() {
  return {
      {.experts = 8, .per_token = 2, .normalise = true},
      {.experts = 60, .per_token = 4},
      {.experts = 128, .per_token = 8, .normalise = true},
      {.experts = 512, .per_token = 10, .normalise = true},
      {.experts = 160, .per_token = 6, .groups = 8, .groups_per_token = 3, .scale = 16},
      {.experts = 256,
       .per_token = 8,
       .sigmoid = true,
       .groups = 8,
       .groups_per_token = 4,
       .two_best = true,
       .normalise = true,
       .scale = 2.5f},
      {.experts = 3, .per_token = 3, .sigmoid = true},
      {.experts = 40, .per_token = 22, .groups = 40, .groups_per_token = 30, .two_best = true},
  };
}

TEST_F(RouteTest, ChoosesAndWeighsAsTheOracleAndTheCpuDo) {
  std::mt19937 random(1);
  int compared = 0;
  for (const Routing& r : routings())
    for (const bool biased : {false, true}) {
      const int64_t tokens = 9;
      const auto logits = reference::random_floats(tokens * r.experts, random, 3);
      const auto bias = reference::random_floats(biased ? r.experts : 0, random, 0.1f);
      const Choice got = on_gpu(logits, bias, r);
      for (int64_t t = 0; t < tokens; t++) {
        const auto expected =
            reference::route({&logits[size_t(t * r.experts)], size_t(r.experts)}, bias, r);
        if (expected.gap < 1e-5) continue;
        for (size_t j = 0; j < size_t(r.per_token); j++) {
          const size_t at = size_t(t * r.per_token) + j;
          ASSERT_EQ(got.experts[at], expected.experts[j]) << r.experts << " experts, token " << t;
          ASSERT_NEAR(got.weights[at], expected.weights[j], 2e-6 * expected.weights[j] + 1e-30);
          compared++;
        }
      }
      expect_cpu(logits, bias, r);
    }
  EXPECT_GT(compared, 500);
}

TEST_F(RouteTest, TakesThreadsInAnyOrder) {
  std::mt19937 random(2);
  for (const Routing& r : routings()) {
    const auto logits = reference::random_floats(5 * r.experts, random, 3);
    in_every_order([&] { expect_cpu(logits, {}, r); });
  }
}

TEST_F(RouteTest, OfEqualScoresTheLowerNumberIsFirst) {
  for (const Routing& r : routings()) {
    std::vector<float> logits(size_t(r.experts), 0.5f);
    std::vector<int32_t> first(static_cast<size_t>(r.per_token));
    std::iota(first.begin(), first.end(), 0);
    EXPECT_EQ(on_gpu(logits, {}, r).experts, first);
  }
  const Routing r{.experts = 70, .per_token = 2};
  std::vector<float> logits(70, -0.0f);
  for (const size_t e : {33, 40, 65}) logits[e] = 1;
  EXPECT_EQ(on_gpu(logits, {}, r).experts, (std::vector<int32_t>{33, 40}));
  // Far below the best every score is 0.
  logits.assign(70, -200);
  logits[66] = 0;
  EXPECT_EQ(on_gpu(logits, {}, r).experts, (std::vector<int32_t>{0, 66}));
}

TEST_F(RouteTest, NanChoosesTheFirstExpertsAndTouchesNoOtherToken) {
  std::mt19937 random(3);
  for (const Routing& r : routings()) {
    std::vector<float> logits = reference::random_floats(4 * r.experts, random);
    logits[size_t(r.experts)] = kNan;
    logits[size_t(3 * r.experts - 1)] = kNan;
    const Choice got = on_gpu(logits, {}, r);
    for (const size_t token : {1, 2})
      for (size_t j = 0; j < size_t(r.per_token); j++) {
        EXPECT_EQ(got.experts[token * size_t(r.per_token) + j], int32_t(j));
        EXPECT_TRUE(std::isnan(got.weights[token * size_t(r.per_token) + j]));
      }
    expect_cpu(logits, {}, r);
    logits[3] = kInfinity;
    logits[size_t(3 * r.experts)] = -kInfinity;
    expect_cpu(logits, {}, r);
  }
}

// ---- group_tokens and take_rows ----

struct Grouped {
  std::vector<int32_t> offsets, rows, places;
};

// A stable sort of the pairs by the number of their expert.
Grouped sorted(const std::vector<int32_t>& experts, int per_token,
               const std::vector<int32_t>& local, int groups) {
  std::vector<size_t> pairs;
  for (size_t i = 0; i < experts.size(); i++)
    if (local[size_t(experts[i])] >= 0) pairs.push_back(i);
  const auto group = [&](size_t pair) { return local[size_t(experts[pair])]; };
  std::stable_sort(pairs.begin(), pairs.end(),
                   [&](size_t a, size_t b) { return group(a) < group(b); });
  Grouped out{std::vector<int32_t>(size_t(groups) + 1, 0), std::vector<int32_t>(experts.size(), -1),
              std::vector<int32_t>(experts.size(), -1)};
  for (size_t i = 0; i < pairs.size(); i++) {
    out.rows[i] = int32_t(pairs[i]) / per_token;
    out.places[pairs[i]] = int32_t(i);
    for (int g = group(pairs[i]) + 1; g <= groups; g++) out.offsets[size_t(g)]++;
  }
  return out;
}

// Of each token k different experts, ascending.
std::vector<int32_t> random_experts(int64_t tokens, int k, int experts, std::mt19937& random) {
  std::vector<int32_t> all(static_cast<size_t>(experts)), out;
  std::iota(all.begin(), all.end(), 0);
  for (int64_t t = 0; t < tokens; t++) {
    std::shuffle(all.begin(), all.end(), random);
    std::sort(all.begin(), all.begin() + k);
    out.insert(out.end(), all.begin(), all.begin() + k);
  }
  return out;
}

// Every `apart`-th expert is here, the numbers in descending order.
std::vector<int32_t> some_local(int experts, int apart, int& groups) {
  std::vector<int32_t> local(size_t(experts), -1);
  groups = 0;
  for (int e = experts - 1; e >= 0; e -= apart) local[size_t(e)] = groups++;
  return local;
}

class GroupTokensTest : public ExpertsTest {
 protected:
  void expect_sorted(int64_t tokens, int k, int experts, const std::vector<int32_t>& local,
                     int groups, std::mt19937& random) {
    SCOPED_TRACE(concat(tokens, " tokens, ", k, " of ", experts, " experts, ", groups, " here"));
    const std::vector<int32_t> chosen = random_experts(tokens, k, experts, random);
    const Grouped expected = sorted(chosen, k, local, groups);
    const DeviceArray in = ints(chosen), numbers = ints(local),
                      offsets = ints(std::vector<int32_t>(size_t(groups) + 1, -9)),
                      rows = ints(std::vector<int32_t>(chosen.size(), -9)),
                      places = ints(std::vector<int32_t>(chosen.size(), -9));
    ops::group_tokens(stream_, offsets.list(), rows.list(),
                      Tensor(places.data(), DType::i32, {tokens, k}),
                      Tensor(in.data(), DType::i32, {tokens, k}), numbers.list());
    EXPECT_EQ(offsets.ints(), expected.offsets);
    EXPECT_EQ(rows.ints(), expected.rows);
    EXPECT_EQ(places.ints(), expected.places);
  }
};

TEST_F(GroupTokensTest, IsAStableSort) {
  std::mt19937 random(4);
  in_every_order([&] {
    for (const auto& [k, experts] : {std::pair(1, 1), std::pair(2, 8), std::pair(8, 256)})
      for (const int64_t tokens : {0, 1, 5, 33, 300}) {
        if (tokens == 300 && k != 2) continue;
        for (const int apart : {1, 3}) {
          int groups = 0;
          const std::vector<int32_t> local = some_local(experts, apart, groups);
          expect_sorted(tokens, k, experts, local, groups, random);
        }
      }
  });
}

TEST_F(GroupTokensTest, ManyPairsTakeSeveralPasses) {
  std::mt19937 random(5);
  for (const auto& [tokens, k, experts] : {std::tuple(1100, 8, 40), std::tuple(4500, 2, 300)}) {
    int groups = 0;
    const std::vector<int32_t> local = some_local(experts, 2, groups);
    in_every_order([&] { expect_sorted(tokens, k, experts, local, groups, random); });
  }
}

TEST_F(GroupTokensTest, NoExpertMayBeHere) {
  std::mt19937 random(6);
  expect_sorted(7, 2, 4, {-1, -1, -1, -1}, 0, random);
  expect_sorted(7, 2, 4, {-1, -1, -1, -1}, 3, random);
  expect_sorted(5000, 2, 4, {-1, -1, -1, -1}, 0, random);
}

TEST_F(ExpertsTest, TakesRowsAndZeros) {
  std::mt19937 random(7);
  for (const DType type : {DType::f32, DType::bf16})
    for (const int64_t width : {1, 3, 6, 100, 4104}) {
      const std::vector<float> x = test::rounded(type, reference::random_floats(4 * width, random));
      const DeviceArray in = array(type, x), rows = ints({3, -1, 0, 3, -1}),
                        out = array(type, std::vector<float>(size_t(5 * width), -7.0f));
      in_every_order([&] {
        ops::take_rows(stream_, out.matrix(5), in.matrix(4), rows.list());
        const std::vector<float> got = out.floats();
        for (size_t i = 0; i < size_t(width); i++) {
          ASSERT_EQ(got[i], x[size_t(3 * width) + i]);
          ASSERT_EQ(got[size_t(width) + i], 0);
          ASSERT_EQ(got[size_t(2 * width) + i], x[i]);
          ASSERT_EQ(got[size_t(3 * width) + i], x[size_t(3 * width) + i]);
          ASSERT_EQ(got[size_t(4 * width) + i], 0);
        }
      });
    }
}

// ---- combine_experts ----

class CombineTest : public ExpertsTest {
 protected:
  // Ranges: what a rank with experts [begin, end) sends.
  void expect_tree(int64_t tokens, int k, int experts, int64_t width, DType type,
                   const std::vector<UnitRange>& ranges, std::mt19937& random) {
    SCOPED_TRACE(concat(k, " of ", experts, " experts, ", width, " columns"));
    const std::vector<int32_t> chosen = random_experts(tokens, k, experts, random);
    const int64_t n = tokens * k;
    const auto outputs = test::rounded(type, reference::random_floats(n * width, random));
    const auto weights = reference::random_floats(n, random);
    // Places are shuffled, and some are nobody's.
    std::vector<int32_t> places(static_cast<size_t>(n));
    std::iota(places.begin(), places.end(), 0);
    std::shuffle(places.begin(), places.end(), random);
    for (size_t i = 0; i < places.size(); i += 5) places[i] = -1;
    const DeviceArray pieces = zeros(DType::f32, int64_t(ranges.size()) * tokens * width);
    const DeviceArray out = array(type, outputs), to = ints(places), numbers = ints(chosen),
                      w = array(DType::f32, weights);
    Stream s = stream(type);
    ops::combine_experts(
        s, Tensor(pieces.data(), DType::f32, {int64_t(ranges.size()), tokens, width}),
        out.matrix(n), to.matrix(tokens), numbers.matrix(tokens), w.matrix(tokens), ranges);
    const std::vector<float> got = pieces.floats();
    for (size_t r = 0; r < ranges.size(); r++)
      for (int64_t t = 0; t < tokens; t++) {
        std::vector<int32_t> present;
        std::vector<std::vector<float>> rows;
        std::vector<float> factors;
        for (size_t j = size_t(t * k); j < size_t((t + 1) * k); j++) {
          if (places[j] < 0 || chosen[j] < ranges[r].begin || chosen[j] >= ranges[r].end) continue;
          present.push_back(chosen[j]);
          rows.emplace_back(outputs.begin() + places[j] * width,
                            outputs.begin() + (places[j] + 1) * width);
          factors.push_back(weights[j]);
        }
        std::vector<float> expected(size_t(width), -0.0f);
        if (!present.empty()) expected = reference::combine(experts, present, rows, factors).tree;
        const auto begin = got.begin() + (int64_t(r) * tokens + t) * width;
        ASSERT_TRUE(same_bits({begin, begin + width}, expected))
            << "range " << r << ", token " << t;
      }
  }
};

TEST_F(CombineTest, AddsAlongTheTreeOverExperts) {
  std::mt19937 random(8);
  for (const DType type : test::activation_types())
    for (const auto& [k, experts] : {std::pair(1, 1), std::pair(2, 8), std::pair(4, 60),
                                     std::pair(8, 128), std::pair(10, 512), std::pair(22, 40)})
      for (const int64_t width : {3, 40})
        expect_tree(3, k, experts, width, type, {{0, experts}}, random);
  expect_tree(2, 8, 128, 2100, DType::bf16, {{0, 128}}, random);
}

TEST_F(CombineTest, GivesThePiecesOfARank) {
  std::mt19937 random(9);
  in_every_order([&] {
    expect_tree(4, 8, 60, 24, DType::bf16, maximal_subtrees(60, {7, 41}), random);
    expect_tree(3, 6, 13, 10, DType::f32, maximal_subtrees(13, {3, 13}), random);
  });
  std::vector<UnitRange> alone;  // more than one launch takes
  for (int e = 0; e < 70; e++) alone.push_back({e, e + 1});
  expect_tree(2, 8, 70, 8, DType::f16, alone, random);
}

// ---- all of them in a graph ----

TEST_F(ExpertsTest, AReplayedGraphRoutesOtherTokens) {
  std::mt19937 random(10);
  const Routing r{.experts = 16, .per_token = 3, .normalise = true};
  const int64_t tokens = 5, width = 24, n = tokens * r.per_token;
  DeviceArray logits = zeros(DType::f32, tokens * r.experts),
              x = zeros(DType::bf16, tokens * width);
  std::vector<int32_t> local(16);
  std::iota(local.begin(), local.end(), 0);
  const DeviceArray numbers = ints(local), experts = ints(std::vector<int32_t>(size_t(n), 0)),
                    weights = zeros(DType::f32, n), offsets = ints(std::vector<int32_t>(17, 0)),
                    rows = ints(std::vector<int32_t>(size_t(n), 0)),
                    places = ints(std::vector<int32_t>(size_t(n), 0)),
                    taken = zeros(DType::bf16, n * width), out = zeros(DType::f32, tokens * width);
  const UnitRange all{0, 16};
  const CudaGraph graph = CudaGraph::capture(device(), [&] {
    ops::route_experts(stream_, experts.matrix(tokens), weights.matrix(tokens),
                       logits.matrix(tokens), Tensor(), r);
    ops::group_tokens(stream_, offsets.list(), rows.list(), places.matrix(tokens),
                      experts.matrix(tokens), numbers.list());
    ops::take_rows(stream_, taken.matrix(n), x.matrix(tokens), rows.list());
    ops::combine_experts(stream_, Tensor(out.data(), DType::f32, {1, tokens, width}),
                         taken.matrix(n), places.matrix(tokens), experts.matrix(tokens),
                         weights.matrix(tokens), {&all, 1});
  });
  for (int turn = 0; turn < 3; turn++) {
    const auto scores = reference::random_floats(tokens * r.experts, random);
    const auto values =
        test::rounded(DType::bf16, reference::random_floats(tokens * width, random));
    logits.set(scores);
    x.set(values);
    graph.launch(device().compute());
    EXPECT_EQ(experts.ints(), on_cpu(scores, {}, r).experts);
    // Weights of a token add up to 1, and every expert returns its row as it is.
    const std::vector<float> got = out.floats();
    for (size_t i = 0; i < got.size(); i++)
      ASSERT_NEAR(got[i], values[i], 1e-6 * std::fabs(values[i])) << "turn " << turn;
  }
}

}  // namespace
}  // namespace cohort
