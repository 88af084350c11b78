// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "kernels/cpu/vocabulary.h"
#include "kernels/ops.h"
#include "kernels/philox.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/streams.h"

namespace cohort {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Known answers: kat_vectors of the generator's authors (Random123), philox4x32 with 10 rounds.
TEST(Philox, KnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

SampledToken sample(std::vector<float> logits, const SampleRow& row, Isa isa = Isa::portable,
                    int threads = 1) {
  Stream stream(threads, isa);
  SampledToken out;
  ops::sample(stream, {&out, 1}, Tensor(logits.data(), DType::f32, {1, int64_t(logits.size())}),
              {&row, 1});
  return out;
}

// Many draws of one distribution: output index i for i = 0, 1, ...; the output tokens themselves
// are outside the vocabulary, so that penalties see none.
std::vector<int> draw(const std::vector<float>& logits, const SamplingParams& params, int draws,
                      std::vector<int32_t> prompt = {}) {
  Stream stream(1, detect_isa());
  const std::vector<int32_t> outputs(static_cast<size_t>(draws), -1);
  std::vector<int> counts(logits.size());
  std::vector<float> copy;
  for (int i = 0; i < draws; i++) {
    copy = logits;
    const SampleRow row{&params, prompt, std::span(outputs).first(size_t(i))};
    SampledToken out;
    ops::sample(stream, {&out, 1}, Tensor(copy.data(), DType::f32, {1, int64_t(copy.size())}),
                {&row, 1});
    EXPECT_TRUE(out.finite);
    counts[size_t(out.token)]++;
  }
  return counts;
}

// Tokens of probability 0 never come; the others pass a chi-square test at about 4 sigma. Seeds are
// fixed, so the outcome never changes.
void expect_follows(const std::vector<int>& counts, const std::vector<double>& p) {
  int draws = 0;
  for (int c : counts) draws += c;
  double chi = 0, rest_expected = 0, rest_count = 0;
  int cells = 0;
  for (size_t i = 0; i < p.size(); i++) {
    const double expected = p[i] * draws;
    if (p[i] == 0) {
      EXPECT_EQ(counts[i], 0) << i;
    } else if (expected < 5) {
      rest_expected += expected;
      rest_count += counts[i];
    } else {
      chi += (counts[i] - expected) * (counts[i] - expected) / expected;
      cells++;
    }
  }
  if (rest_expected >= 5) {
    chi += (rest_count - rest_expected) * (rest_count - rest_expected) / rest_expected;
    cells++;
  }
  const double freedom = std::max(cells - 1, 1);
  EXPECT_LT(chi, freedom + 4 * std::sqrt(2 * freedom) + 4);
}

struct Case {
  const char* name;
  SamplingParams params;
};
std::vector<Case> cases() {
  const auto with = [](auto set) {
    SamplingParams p;
    p.seed = 77;
    set(p);
    return p;
  };
  return {
      {"plain", with([](auto&) {})},
      {"cool", with([](auto& p) { p.temperature = 0.6f; })},
      {"hot", with([](auto& p) { p.temperature = 3; })},
      {"top_k", with([](auto& p) { p.top_k = 7; })},
      {"top_p", with([](auto& p) { p.top_p = 0.8f; })},
      {"min_p", with([](auto& p) { p.min_p = 0.1f; })},
      {"all", with([](auto& p) {
         p.temperature = 1.4f;
         p.top_k = 40;
         p.top_p = 0.9f;
         p.min_p = 0.02f;
       })},
      {"bias", with([](auto& p) {
         p.logit_bias = {{3, 2.0f}, {5, -100.0f}, {3, 0.5f}};
       })},
      {"repetition", with([](auto& p) { p.repetition_penalty = 1.7f; })},
      {"min_tokens", with([](auto& p) {
         p.min_tokens = 100000;
         p.end_tokens = {0, 2};
       })},
  };
}

TEST(Sampling, FollowsTheExactProbabilities) {
  std::mt19937 random(1);
  for (int vocab : {6, 300, 1500}) {
    const std::vector<float> logits = reference::random_floats(vocab, random, 2);
    for (const Case& c : cases()) {
      SCOPED_TRACE(concat(c.name, " of ", vocab));
      const std::vector<int32_t> prompt = {1, 4};
      const SampleRow row{&c.params, prompt, {}};
      SamplingParams params = c.params;
      expect_follows(draw(logits, params, 4000, prompt), reference::probabilities(logits, row));
    }
  }
}

TEST(Sampling, PenaltiesCountTheOutput) {
  SamplingParams params;
  params.temperature = 0;
  params.frequency_penalty = 0.5f;
  params.presence_penalty = 0.25f;
  const std::vector<int32_t> prompt = {2}, output = {0, 0, 1, 99, -4};
  const SampleRow row{&params, prompt, output};
  // 0: 4 - 2 * 0.5 - 0.25 = 2.75, 1: 3.5 - 0.75 = 2.75, 2: 2.76 (prompt does not count).
  EXPECT_EQ(sample({4, 3.5f, 2.76f, 1}, row).token, 2);
  EXPECT_EQ(sample({4, 3.5f, 2.75f, 1}, row).token, 0);  // equal: the lowest
  params.repetition_penalty = 2;
  // 2 is negative and in the prompt: -1 * 2.
  EXPECT_EQ(sample({-3, -3, -1, -1.9f}, row).token, 3);
}

TEST(Sampling, GreedyTakesTheLowestOfEqualMaxima) {
  SamplingParams params;
  params.temperature = 0;
  const SampleRow row{&params, {}, {}};
  for (int vocab : {1, 5, 256, 257, 5000})
    for (int at = 0; at < vocab; at += 1 + vocab / 7) {
      std::vector<float> logits(size_t(vocab), -2);
      logits[size_t(at)] = 1;
      logits.back() = 1;
      EXPECT_EQ(sample(logits, row).token, at);
    }
  EXPECT_EQ(sample({-0.0f, 0.0f}, row).token, 0);
}

// E13: the draw depends on seed and output index alone.
TEST(Sampling, E13_SameSeedSameTokenInAnyBatchIsaAndThreads) {
  std::mt19937 random(2);
  const int vocab = 4999;
  const size_t n = 7;
  const std::vector<float> logits = reference::random_floats(int64_t(n) * vocab, random, 2);
  std::vector<SamplingParams> params(n);
  std::vector<int32_t> output(n, 3);
  std::vector<SampleRow> rows;
  for (size_t i = 0; i < n; i++) {
    params[i] = cases()[i].params;
    params[i].logprobs = 3;
    rows.push_back({&params[i], {}, std::span(output).first(i)});
  }
  std::vector<SampledToken> alone;
  for (size_t i = 0; i < n; i++)
    alone.push_back(sample(
        {logits.begin() + int64_t(i) * vocab, logits.begin() + int64_t(i + 1) * vocab}, rows[i]));
  for (Isa isa : isas())
    for (int threads : {1, 2, 3}) {
      Stream stream(threads, isa);
      std::vector<float> copy = logits;
      std::vector<SampledToken> out(n);
      ops::sample(stream, out, Tensor(copy.data(), DType::f32, {int64_t(n), vocab}), rows);
      EXPECT_EQ(out, alone) << name(isa) << " " << threads;
    }
  std::set<int32_t> tokens;
  for (uint64_t seed = 0; seed < 20; seed++) {
    params[0].seed = seed;
    tokens.insert(sample({logits.begin(), logits.begin() + vocab}, rows[0]).token);
  }
  EXPECT_GT(tokens.size(), 10u);
}

// The threads share a lone row of many tokens.
TEST(Sampling, ALoneRowIsTheSameForAnyIsaAndThreads) {
  std::mt19937 random(7);
  const int vocab = 50003;
  const std::vector<float> logits = reference::random_floats(vocab, random, 2);
  const std::vector<int32_t> prompt = {3, 50002, 3, 77}, output = {77, 9, 77};
  for (const Case& c : cases()) {
    SamplingParams params = c.params;
    params.logprobs = 4;
    params.presence_penalty = 0.25f;
    const SampleRow row{&params, prompt, output};
    const SampledToken expected = sample(logits, row);
    EXPECT_TRUE(expected.finite);
    for (Isa isa : isas())
      for (int threads : {1, 3})
        EXPECT_EQ(sample(logits, row, isa, threads), expected) << c.name << " " << name(isa);
  }
}

TEST(Sampling, LogprobsAreOfTheRawLogits) {
  std::mt19937 random(3);
  for (Isa isa : isas()) {
    const std::vector<float> logits = reference::random_floats(1000, random, 3);
    SamplingParams params;
    params.temperature = 0;
    params.logit_bias = {{17, 1000.0f}};
    params.logprobs = 5;
    const SampleRow row{&params, {}, {}};
    const SampledToken out = sample(logits, row, isa);
    SamplingParams raw;
    const auto p = reference::probabilities(logits, {&raw, {}, {}});
    EXPECT_EQ(out.token, 17);
    EXPECT_NEAR(out.logprob, std::log(p[17]), 1e-5);
    ASSERT_EQ(out.top.size(), 5u);
    for (size_t i = 0; i < 5; i++) {
      EXPECT_NEAR(out.top[i].logprob, std::log(p[size_t(out.top[i].token)]), 1e-5);
      EXPECT_LE(out.top[i].logprob, out.top[i > 0 ? i - 1 : 0].logprob);
    }
    for (size_t t = 0; t < p.size(); t++) {
      const bool listed = std::any_of(out.top.begin(), out.top.end(),
                                      [&](const TokenLogprob& x) { return x.token == int(t); });
      EXPECT_TRUE(listed || p[t] <= p[size_t(out.top[4].token)]);
    }
    params.logprobs = 0;
    EXPECT_TRUE(sample(logits, row).top.empty());
    EXPECT_NE(sample(logits, row).logprob, 0);
  }
}

TEST(Sampling, NotFiniteLogitsAreSaid) {
  for (float temperature : {0.0f, 1.0f}) {
    SamplingParams params;
    params.temperature = temperature;
    const SampleRow row{&params, {}, {}};
    for (float bad : {std::numeric_limits<float>::quiet_NaN(),
                      -std::numeric_limits<float>::quiet_NaN(), kInfinity}) {
      std::vector<float> logits(700, 1);
      logits[690] = bad;
      EXPECT_FALSE(sample(logits, row).finite);
      EXPECT_EQ(sample(logits, row).token, 0);
    }
    EXPECT_FALSE(sample({-kInfinity, -kInfinity}, row).finite);
    std::vector<float> one(700, -kInfinity);
    one[699] = -5;
    EXPECT_EQ(sample(one, row).token, 699);
    EXPECT_TRUE(sample(one, row).finite);
  }
}

// NaN of one row says nothing about its neighbours.
TEST(Sampling, NanStaysInItsRow) {
  SamplingParams params;
  params.temperature = 0;
  const std::vector<SampleRow> rows(3, SampleRow{&params, {}, {}});
  std::vector<float> logits = {1, 2, 3, 1, std::numeric_limits<float>::quiet_NaN(), 3, 5, 2, 3};
  Stream stream(2, detect_isa());
  std::vector<SampledToken> out(3);
  ops::sample(stream, out, Tensor(logits.data(), DType::f32, {3, 3}), rows);
  EXPECT_EQ(out[0].token, 2);
  EXPECT_FALSE(out[1].finite);
  EXPECT_EQ(out[2].token, 0);
  EXPECT_TRUE(out[0].finite && out[2].finite);
}

TEST(Sampling, ExtremeParametersStayInRange) {
  std::mt19937 random(4);
  const std::vector<float> logits = reference::random_floats(600, random, 3);
  const auto best = int32_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
  SamplingParams params;
  const SampleRow row{&params, {}, {}};
  params.temperature = 1e-40f;  // log2(e) / temperature is beyond f32
  EXPECT_EQ(sample(logits, row).token, best);
  params.temperature = 1;
  params.top_p = 0;
  EXPECT_EQ(sample(logits, row).token, best);
  params.top_p = 1;
  params.min_p = 1;
  EXPECT_EQ(sample(logits, row).token, best);
  params.min_p = 0;
  params.top_k = 1;
  EXPECT_EQ(sample(logits, row).token, best);
  params.top_k = 1 << 30;
  params.temperature = std::numeric_limits<float>::max();
  const SampledToken out = sample(logits, row);
  EXPECT_TRUE(out.finite && out.token >= 0 && out.token < 600);
}

// top_p looks at 256 tokens first; wide distributions need more.
TEST(Sampling, TopPOfAWideDistribution) {
  std::vector<float> logits(5000, 0);
  for (size_t i = 0; i < logits.size(); i++) logits[i] = float(i % 7) * 0.01f;
  SamplingParams params;
  params.seed = 5;
  params.top_p = 0.5f;
  const auto p = reference::probabilities(logits, {&params, {}, {}});
  const auto counts = draw(logits, params, 3000);
  int outside = 0;  // the edge token may differ between f32 and double sums
  for (size_t i = 0; i < p.size(); i++)
    if (p[i] == 0) outside += counts[i];
  EXPECT_LE(outside, 2);
}

TEST(SelectTop, EqualsAFullSort) {
  std::mt19937 random(6);
  for (float scale : {0.0f, 0.01f, 1.0f, 40.0f, 1e30f})
    for (int64_t n : {1, 300, 5000}) {
      std::vector<float> logits = reference::random_floats(n, random, scale);
      logits[size_t(n / 2)] = -kInfinity;
      logits[size_t(n / 3)] = logits[0];
      logits[size_t(n / 4)] = -0.0f;
      std::vector<uint64_t> all, keys(cpu::keys_for(size_t(n)));
      std::vector<float> maxima(size_t(cpu::token_lanes(n)));
      for (int64_t i = 0; i < n; i++) all.push_back(cpu::order_key(logits[size_t(i)], int32_t(i)));
      std::sort(all.begin(), all.end());
      const cpu::Largest top = cpu::find_largest(logits, kRowsPortable, maxima.data());
      EXPECT_EQ(top.value, *std::max_element(logits.begin(), logits.end()));
      // Bounded by blocks, by lanes, and by nothing.
      for (int64_t count : {int64_t(1), int64_t(14), int64_t(40), int64_t(270), n}) {
        count = std::min(count, n);
        cpu::select_top(logits, maxima.data(), count, keys.data());
        for (int64_t i = 0; i < count; i++) ASSERT_EQ(keys[size_t(i)], all[size_t(i)]);
      }
      for (int64_t i = 1; i < n; i++) {  // descending, equal ones by number
        const float a = logits[size_t(cpu::token_of(all[size_t(i - 1)]))];
        const float b = logits[size_t(cpu::token_of(all[size_t(i)]))];
        ASSERT_TRUE(a > b ||
                    (a == b && cpu::token_of(all[size_t(i - 1)]) < cpu::token_of(all[size_t(i)])));
      }
    }
}

TEST(FixedLog, MatchesTheLibrary) {
  for (double x : {1.0, 0.5, 2.0, 1e-30, 1.4142, 1.4143, 49152.0, 1e300, 3.0, 0.70710678})
    EXPECT_NEAR(cpu::fixed_log(x), std::log(x), 1e-15 * (1 + std::fabs(std::log(x))));
}

}  // namespace
}  // namespace cohort
