// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/ops.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/streams.h"

namespace cohort {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Answer {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

Answer route(Stream& stream, const Routing& r, const std::vector<float>& logits,
             const std::vector<float>& bias = {}) {
  const int64_t tokens = int64_t(logits.size()) / r.experts, k = r.per_token;
  Answer out{std::vector<int32_t>(size_t(tokens * k), -9),
             std::vector<float>(size_t(tokens * k), -9)};
  const Tensor bias_tensor = bias.empty() ? Tensor() : Tensor(bias.data(), DType::f32, {r.experts});
  ops::route_experts(stream, Tensor(out.experts.data(), DType::i32, {tokens, k}),
                     Tensor(out.weights.data(), DType::f32, {tokens, k}),
                     Tensor(logits.data(), DType::f32, {tokens, r.experts}), bias_tensor, r);
  return out;
}

unsigned below(unsigned n, std::mt19937& random) { return unsigned(random()) % n; }

Routing random_routing(std::mt19937& random) {
  Routing r;
  r.groups = below(3, random) == 0 ? 1 : 1 << below(4, random);
  const int size = 1 + int(below(12, random));
  r.experts = r.groups * size;
  r.groups_per_token = 1 + int(below(unsigned(r.groups), random));
  r.per_token = 1 + int(below(unsigned(std::min(8, r.groups_per_token * size)), random));
  r.sigmoid = below(2, random);
  r.two_best = below(2, random);
  r.normalise = below(2, random);
  r.scale = below(2, random) ? 1 : 2.5f;
  return r;
}

// Half of the time of few values, so that there are many ties.
std::vector<float> random_values(int64_t n, float scale, std::mt19937& random) {
  auto out = reference::random_floats(n, random, scale);
  if (below(2, random))
    for (float& x : out) x = scale * (0.1f + 0.5f * std::round(2 * x / scale));
  return out;
}

// How many of the tokens were decided clearly enough for f32.
int compare(const Routing& r, const std::vector<float>& logits, const std::vector<float>& bias,
            const Answer& answer) {
  int compared = 0;
  const auto n = size_t(r.experts), k = size_t(r.per_token);
  for (size_t t = 0; t < logits.size() / n; t++) {
    const auto expected = reference::route(std::span(logits).subspan(t * n, n), bias, r);
    if (expected.gap < 1e-5) continue;
    compared++;
    for (size_t j = 0; j < k; j++) {
      EXPECT_EQ(answer.experts[t * k + j], expected.experts[j]);
      // The exponent's rounding grows with it; scores below 2^-64 are 0.
      EXPECT_NEAR(answer.weights[t * k + j], expected.weights[j],
                  1e-5 * expected.weights[j] + 1e-18);
    }
  }
  return compared;
}

TEST(RouteExperts, RandomCasesWithGroupsBiasesAndTies) {
  std::mt19937 random(1);
  std::vector<std::unique_ptr<Stream>> streams;
  for (Isa isa : isas())
    for (int threads : {1, 3}) streams.push_back(std::make_unique<Stream>(threads, isa));
  int compared = 0;
  constexpr int kRounds = 1500, kTokens = 200;
  for (int round = 0; round < kRounds && !HasFailure(); round++) {
    const Routing r = random_routing(random);
    const auto logits = random_values(int64_t(kTokens) * r.experts, 2, random);
    std::vector<float> bias;
    if (below(2, random)) bias = random_values(r.experts, 0.3f, random);
    const Answer answer = route(*streams[0], r, logits, bias);
    for (const auto& stream : streams) {
      const Answer other = route(*stream, r, logits, bias);
      ASSERT_EQ(other.experts, answer.experts);
      ASSERT_TRUE(same_bits(other.weights, answer.weights));
    }
    compared += compare(r, logits, bias, answer);
  }
  EXPECT_GT(compared, kRounds * kTokens * 95 / 100);
}

TEST(RouteExperts, ATokenAloneIsTheSameAsInABatch) {
  std::mt19937 random(2);
  Stream stream(3, detect_isa());
  const Routing r{.experts = 128, .per_token = 8, .normalise = true};
  const auto logits = reference::random_floats(100 * 128, random, 3);
  const Answer all = route(stream, r, logits);
  for (int64_t t = 0; t < 100; t++) {
    const auto row = logits.begin() + t * 128;
    const Answer one = route(stream, r, std::vector<float>(row, row + 128));
    for (size_t j = 0; j < 8; j++) {
      ASSERT_EQ(one.experts[j], all.experts[size_t(t) * 8 + j]);
      ASSERT_EQ(one.weights[j], all.weights[size_t(t) * 8 + j]);
    }
  }
}

TEST(RouteExperts, EqualScoresTakeLowerNumbers) {
  Stream stream(1, Isa::portable);
  for (bool sigmoid : {false, true}) {
    const Routing r{.experts = 6,
                    .per_token = 3,
                    .sigmoid = sigmoid,
                    .groups = 3,
                    .groups_per_token = 2,
                    .two_best = true,
                    .normalise = true};
    EXPECT_EQ(route(stream, r, std::vector<float>(6, 0.5f)).experts,
              (std::vector<int32_t>{0, 1, 2}));
    EXPECT_EQ(route(stream, r, {0, 1, 0, 0, 1, 0}).experts, (std::vector<int32_t>{0, 1, 4}));
  }
}

TEST(RouteExperts, ABiasChoosesButDoesNotWeigh) {
  Stream stream(1, Isa::portable);
  const Routing r{.experts = 4, .per_token = 2, .sigmoid = true, .scale = 2};
  const Answer answer = route(stream, r, {0, 5, 0, -3}, {0, -2, 0.25f, 1});
  EXPECT_EQ(answer.experts, (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(answer.weights[0], 1);
  EXPECT_NEAR(answer.weights[1], 2 * reference::sigmoid(-3), 1e-6);
}

TEST(RouteExperts, ExcludedGroupsCannotWinByNegativeScores) {
  Stream stream(1, Isa::portable);
  const Routing r{
      .experts = 4, .per_token = 2, .sigmoid = true, .groups = 2, .groups_per_token = 1};
  EXPECT_EQ(route(stream, r, {0, 0, 0, 0}, {-9, -9, -8, -10}).experts,
            (std::vector<int32_t>{2, 3}));
}

TEST(RouteExperts, NanChoosesTheFirstWithNanAndStaysInItsToken) {
  for (Isa isa : isas())
    for (bool sigmoid : {false, true})
      for (size_t at : {0, 4, 9}) {
        Stream stream(1, isa);
        const Routing r{.experts = 10,
                        .per_token = 3,
                        .sigmoid = sigmoid,
                        .groups = 2,
                        .groups_per_token = 1,
                        .two_best = true,
                        .normalise = true};
        std::vector<float> logits(30);
        for (size_t i = 0; i < 30; i++) logits[i] = float(i % 10);
        logits[10 + at] = kNan;
        const Answer answer = route(stream, r, logits);
        EXPECT_EQ(answer.experts, (std::vector<int32_t>{7, 8, 9, 0, 1, 2, 7, 8, 9}));
        for (size_t i = 0; i < 9; i++) EXPECT_EQ(std::isnan(answer.weights[i]), i / 3 == 1) << i;
      }
}

TEST(RouteExperts, InfiniteLogits) {
  Stream stream(1, Isa::portable);
  Routing r{.experts = 3, .per_token = 2, .normalise = true};
  const Answer never = route(stream, r, {-kInfinity, 1, -kInfinity});
  EXPECT_EQ(never.experts, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(never.weights, (std::vector<float>{0, 1}));
  EXPECT_TRUE(std::isnan(route(stream, r, {0, kInfinity, 0}).weights[0]));
  r.sigmoid = true;
  const Answer sure = route(stream, r, {-kInfinity, 0, kInfinity});
  EXPECT_EQ(sure.experts, (std::vector<int32_t>{1, 2}));
  EXPECT_NEAR(sure.weights[1], 2.0 / 3, 1e-6);
  const Answer nothing = route(stream, r, std::vector<float>(3, -kInfinity));
  EXPECT_EQ(nothing.weights, (std::vector<float>{0, 0}));  // not NaN of 0 / 0
}

TEST(RouteExperts, NoTokensAreFine) {
  Stream stream(2, Isa::portable);
  EXPECT_TRUE(route(stream, {.experts = 4, .per_token = 2}, {}).experts.empty());
}

}  // namespace
}  // namespace cohort
