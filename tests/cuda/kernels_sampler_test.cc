// SPDX-License-Identifier: Apache-2.0
// The GPU's sampler gives what the CPU's gives, to the bit: tokens, log-probabilities, failures.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/half.h"
#include "tests/cuda/sampler_rig.h"
#include "tests/cuda_emulation/device.h"
#include "tests/cuda_emulation/runtime.h"

namespace cohort {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Random rows of everything that a request can ask for.
class Cases {
 public:
  Cases(uint64_t seed, int32_t vocab) : random_(seed), vocab_(vocab) {}

  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[random_() % values.size()];
  }
  bool chance(int percent) { return int(random_() % 100) < percent; }
  int32_t token() { return int32_t(random_() % uint64_t(vocab_)); }

  std::vector<float> logits() {
    std::normal_distribution<float> normal;
    const float spread = one_of({0.0f, 0.3f, 2.0f, 8.0f, 40.0f});
    const int rounding = one_of({0, 0, 1, 2});
    const bool masked = chance(15);
    std::vector<float> out;
    for (int32_t i = 0; i < vocab_; i++) {
      float x = normal(random_) * spread;
      if (rounding == 1) x = half_to_float(float_to_half(x));
      if (rounding == 2) x = std::round(x);
      out.push_back(masked && chance(60) ? -kInfinity : x);
    }
    if (chance(3)) out[size_t(token())] = one_of({kNaN, -kNaN, kInfinity});
    if (chance(2)) out.assign(out.size(), -kInfinity);
    return out;
  }

  void draw(SamplingParams& p) {
    p.temperature = one_of({0.0f, 1e-30f, 0.2f, 0.8f, 1.0f, 1.5f, 30.0f});
    p.seed = random_();
    if (chance(40)) p.top_k = one_of({1, 2, 5, 40, 300, vocab_ - 1, vocab_, vocab_ + 5});
    if (chance(40)) p.top_p = one_of({0.0f, 1e-6f, 0.1f, 0.5f, 0.9f, 0.99f, 0x1.fffffep-1f});
    if (chance(30)) p.min_p = one_of({1e-25f, 1e-3f, 0.05f, 0.5f, 1.0f, 1.5f});
  }

  void adjust(SamplingParams& p, size_t output) {
    if (chance(40)) p.frequency_penalty = one_of({-2.0f, -0.3f, 0.1f, 1.0f, 2.0f});
    if (chance(40)) p.presence_penalty = one_of({-2.0f, -0.3f, 0.1f, 1.0f, 2.0f});
    if (chance(40)) p.repetition_penalty = one_of({0.5f, 1.1f, 1.3f, 2.0f});
    if (chance(40))
      for (int n = one_of({1, 3, 40, 300}); n > 0; n--)
        p.logit_bias.emplace_back(chance(5) ? vocab_ + 3 : token(),
                                  one_of({-100.0f, -1.0f, 0.3f, 5.0f, 100.0f, -kInfinity}));
    if (chance(3)) p.logit_bias.emplace_back(token(), one_of({kNaN, kInfinity}));
    if (chance(40)) {
      p.min_tokens = int32_t(output) + one_of({-1, 0, 1, 10});
      for (int n = one_of({1, 3, vocab_ < 10 ? 30 : 7}); n > 0; n--)
        p.end_tokens.push_back(chance(5) ? -1 : token());
    }
  }

  SampleCase next(bool adjusts = true) {
    SampleCase c;
    c.logits = logits();
    for (int n = one_of({1, 7, 40, 300}); n > 0; n--) c.prompt.push_back(token());
    for (int n = one_of({0, 1, 9, 60, 300}); n > 0; n--)
      c.output.push_back(chance(30) && !c.output.empty() ? c.output[0] : token());
    if (chance(10)) c.prompt.push_back(vocab_ + 1);
    draw(c.params);
    if (adjusts && chance(60)) adjust(c.params, c.output.size());
    if (chance(40)) c.params.logprobs = one_of({0, 1, 5, 20});
    return c;
  }
  std::vector<SampleCase> some(int count) {
    std::vector<SampleCase> out;
    for (int i = 0; i < count; i++) out.push_back(next());
    return out;
  }

 private:
  std::mt19937_64 random_;
  int32_t vocab_;
};

class SamplerTest : public ::testing::Test {
 protected:
  SamplerTest() {
    emu::reset();
    emu::options() = {};
  }
  ~SamplerTest() override {
    EXPECT_TRUE(emu::reports().empty());
    emu::options() = {};
  }
};

// One sampler for all steps: what a step left behind would show in the next.
void compare_random_steps(uint64_t seed, int32_t vocab, int steps, int rows) {
  SamplerRig rig(vocab, rows);
  Cases cases(seed, vocab);
  for (int step = 0; step < steps && !::testing::Test::HasFailure(); step++) {
    const std::vector<SampleCase> some = cases.some(rows);
    expect_same(rig.run(some), some);
  }
}

TEST_F(SamplerTest, AgreesWithTheCpuForTinyVocabularies) { compare_random_steps(1, 7, 150, 16); }
TEST_F(SamplerTest, AgreesWithTheCpuForOneToken) { compare_random_steps(2, 1, 4, 16); }
TEST_F(SamplerTest, AgreesWithTheCpuForOneBlock) { compare_random_steps(3, 256, 80, 16); }
TEST_F(SamplerTest, AgreesWithTheCpuForFewBlocks) { compare_random_steps(4, 1000, 48, 16); }
TEST_F(SamplerTest, AgreesWithTheCpuWhereRowsAreNotAligned) {
  compare_random_steps(5, 4099, 16, 8);
}
TEST_F(SamplerTest, AgreesWithTheCpuForManyTiles) { compare_random_steps(6, 49152, 4, 6); }

// Every thread order, with padding rows.
TEST_F(SamplerTest, DoesNotDependOnTheOrderOfThreads) {
  const std::vector<SampleCase> some = Cases(7, 600).some(12);
  SamplerRig rig(600, 16);
  for (emu::Order order : {emu::Order::forward, emu::Order::reverse, emu::Order::random}) {
    emu::options().order = order;
    expect_same(rig.run(some, 16), some);
  }
}

TEST_F(SamplerTest, ARowAloneIsAsInABatch) {
  const std::vector<SampleCase> some = Cases(8, 520).some(16);
  SamplerRig rig(520, 16);
  const std::vector<SampledToken> together = rig.run(some);
  for (size_t i = 0; i < some.size(); i++) EXPECT_EQ(rig.run({some[i]})[0], together[i]) << i;
}

// A step launches what the features say, so a row may pass through kernels that it does not need.
TEST_F(SamplerTest, AllKernelsAtOnceChangeNothing) {
  Cases cases(9, 500);
  SamplerRig rig(500, 12);
  std::vector<SampleCase> some;
  for (int i = 0; i < 12; i++) some.push_back(cases.next(false));
  rig.load(some, 12);
  rig.enqueue({.adjust = true, .draw = true, .truncate = true, .logprobs = true});
  expect_same(rig.results(), some);
}

TEST_F(SamplerTest, ACapturedStepReplaysWithOtherRows) {
  constexpr cuda::SamplerFeatures kAll{
      .adjust = true, .draw = true, .truncate = true, .logprobs = true};
  Cases cases(10, 512);
  SamplerRig rig(512, 8);
  rig.load(cases.some(8), 8);
  const CudaGraph graph = CudaGraph::capture(rig.device(), [&] { rig.enqueue(kAll); });
  for (int rows : {8, 3, 1, 8}) {
    const std::vector<SampleCase> some = cases.some(rows);
    rig.load(some, 8);
    graph.launch(rig.device().compute());
    expect_same(rig.results(), some);
  }
}

SampleCase plain(std::vector<float> logits, float temperature) {
  SampleCase c;
  c.logits = std::move(logits);
  c.prompt = {0};
  c.params.temperature = temperature;
  return c;
}

// The only expectation that needs no other sampler.
TEST_F(SamplerTest, GreedyTakesTheLowestOfEqualTokens) {
  std::vector<float> logits(9000, -1);
  logits[4100] = logits[4099] = logits[8999] = 3;
  SamplerRig rig(9000, 2);
  std::vector<float> zeros(9000, -0.0f);
  zeros[17] = 0.0f;  // equal to -0
  const auto got = rig.run({plain(logits, 0), plain(zeros, 0)});
  EXPECT_EQ(got[0].token, 4099);
  EXPECT_EQ(got[1].token, 0);
}

TEST_F(SamplerTest, EveryOutputIndexAndSeedHasItsOwnDraw) {
  std::vector<SampleCase> some;
  Cases cases(11, 300);
  for (int i = 0; i < 64; i++) {
    SampleCase c = plain(std::vector<float>(300, 1.0f), 1);
    c.params.seed = i % 2 == 0 ? 5 : uint64_t(i) << 40;
    c.output.assign(size_t(i / 2), 1);
    some.push_back(c);
  }
  SamplerRig rig(300, 64);
  const std::vector<SampledToken> got = rig.run(some);
  expect_same(got, some);
  std::vector<int> seen(300);
  for (const SampledToken& t : got) seen[size_t(t.token)]++;
  EXPECT_LT(*std::max_element(seen.begin(), seen.end()), 5);
}

// Ties and flat rows: more equal tokens than are sorted at once, so that several chunks are needed.
TEST_F(SamplerTest, ManyEqualTokensAreOrderedByNumber) {
  std::vector<SampleCase> some;
  for (int32_t top_k : {0, 2047, 2048, 2049, 5000, 9000})
    for (float top_p : {1.0f, 0.37f, 0.9999f}) {
      SampleCase c = plain(std::vector<float>(10000), 1);
      for (size_t i = 0; i < c.logits.size(); i++) c.logits[i] = i % 3 == 0 ? 1.0f : 0.75f;
      c.params.top_k = top_k;
      c.params.top_p = top_p;
      c.params.seed = uint64_t(top_k) + 3;
      c.params.logprobs = 20;
      some.push_back(c);
    }
  SamplerRig rig(10000, int32_t(some.size()));
  const std::vector<SampledToken> got = rig.run(some);
  expect_same(got, some);
  EXPECT_EQ(got[0].top[19].token, 57);
}

// Logits as a model in f16 gives them: few distinct values near the top.
TEST_F(SamplerTest, RoundedLogitsOfALargeVocabulary) {
  std::mt19937_64 random(12);
  std::normal_distribution<float> normal;
  std::vector<SampleCase> some;
  for (float top_p : {0.95f, 0.999f, 1.0f})
    for (int32_t top_k : {0, 50, 3000}) {
      SampleCase c = plain({}, 1.2f);
      for (int i = 0; i < 32000; i++)
        c.logits.push_back(half_to_float(float_to_half(12 + 2.5f * normal(random))));
      c.params.top_k = top_k;
      c.params.top_p = top_p;
      c.params.seed = random();
      c.params.logprobs = 8;
      some.push_back(c);
    }
  SamplerRig rig(32000, int32_t(some.size()));
  expect_same(rig.run(some), some);
}

// With a second token of small weight w the first one's log-probability is about -w: it shows the
// last bits of the weight.
TEST_F(SamplerTest, WeightsAreTheSameToTheBit) {
  std::mt19937_64 random(13);
  std::uniform_real_distribution<float> below(0.01f, 20);
  SamplerRig rig(2, 256);
  for (int step = 0; step < 4; step++) {
    std::vector<SampleCase> some;
    for (int i = 0; i < 256; i++) {
      some.push_back(plain({3, 3 - below(random)}, 0));
      some.back().params.logprobs = 2;
    }
    expect_same(rig.run(some), some);
  }
}

TEST_F(SamplerTest, BiasesOfATokenAreAddedInTheirOrder) {
  SampleCase c = plain({0, 0.5f, 0}, 0);
  c.params.logit_bias = {{0, 1e9f}, {2, -1}, {0, -1e9f}, {0, 1}};
  SamplerRig rig(3, 1);
  EXPECT_EQ(rig.run({c})[0].token, 0);
  c.params.logit_bias = {{0, 1}, {2, -1}, {0, 1e9f}, {0, -1e9f}};  // the 1 is lost
  EXPECT_EQ(rig.run({c})[0].token, 1);
}

TEST_F(SamplerTest, PenaltiesOfOneStepAreForgottenInTheNext) {
  SamplerRig rig(64, 1);
  SampleCase penalised = plain(std::vector<float>(64, 1.0f), 0);
  penalised.params.presence_penalty = 1;
  for (int32_t first = 0; first < 4; first++) {
    penalised.prompt = {63};
    penalised.output.clear();
    for (int32_t t = 0; t < 10; t++)
      if (t != first) penalised.output.push_back(t);
    EXPECT_EQ(rig.run({penalised})[0].token, first);
  }
}

TEST_F(SamplerTest, FeaturesAreThoseThatRowsNeed) {
  SamplingParams greedy, all;
  greedy.temperature = 0;
  greedy.top_k = 5;  // means nothing without a temperature
  greedy.min_tokens = 3;
  greedy.end_tokens = {1};
  all.top_p = 0.5f;
  all.logprobs = 0;
  const cuda::SamplerRow past{&greedy, 0, 1, 4}, below{&greedy, 0, 1, 3}, drawn{&all, 1, 1, 1};
  using Features = cuda::SamplerFeatures;
  EXPECT_EQ(cuda::features_of({&past, 1}), Features{});
  EXPECT_EQ(cuda::features_of({&below, 1}), Features{.adjust = true});
  EXPECT_EQ(cuda::features_of({&drawn, 1}),
            (Features{.draw = true, .truncate = true, .logprobs = true}));
}

TEST_F(SamplerTest, TooManyExtrasAreAProgrammingError) {
  SamplerRig rig(2000, 1);
  SampleCase c = plain(std::vector<float>(2000), 0);
  for (int32_t i = 0; i < cuda::Sampler::kMostExtras; i++) c.params.logit_bias.emplace_back(i, 1);
  c.params.logit_bias.back().second = 2;
  EXPECT_EQ(rig.run({c})[0].token, cuda::Sampler::kMostExtras - 1);
  c.params.end_tokens = {1};
  EXPECT_DEATH(rig.run({c}), "kMostExtras");
}

}  // namespace
}  // namespace cohort
