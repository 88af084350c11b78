// SPDX-License-Identifier: Apache-2.0
// One answer, whatever asks for it: every way of sampling gives the same tokens and
// log-probabilities on every layout. Ranks tell each other little of their logits; what they leave
// out must not matter.
#include <gtest/gtest.h>

#include <functional>

#include "tests/support/replay.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/worker/requests.h"

namespace cohort::testing {
namespace {

// Parts of the vocabulary are whole blocks of 256 tokens, the last one cut short.
constexpr int32_t kVocab = 4999;

std::shared_ptr<Checkpoint> open_wide() {
  TinyModel model = tiny_model(DType::q8_0);
  model.config.layers = 2;
  model.config.vocab = kVocab;
  return std::make_shared<TinyCheckpoint>(model);
}

// Ways of sampling, without and with log-probabilities, in batches that mix them.
std::vector<TestRequest> varied_requests() {
  using Set = std::function<void(SamplingParams&)>;
  const std::vector<Set> ways = {
      [](auto& p) { p.temperature = 0; },
      [](auto& p) { p.top_k = 40; },
      [](auto& p) { p.top_k = 2000, p.temperature = 20; },
      [](auto& p) { p.top_p = 0.6f; },
      [](auto& p) { p.top_p = 0.95f, p.temperature = 50; },
      [](auto& p) { p.min_p = 0.1f, p.temperature = 3; },
      [](auto& p) { p.temperature = 1.2f; },
      [](auto& p) { p.temperature = 0, p.repetition_penalty = 1.5f, p.presence_penalty = 1; },
      [](auto& p) { p.frequency_penalty = 0.7f, p.top_k = 100, p.top_p = 0.9f; },
      [](auto& p) {
        p.logit_bias = {{4900, 3.0f}, {5, -100.0f}}, p.min_p = 0.01f;
      },
      [](auto& p) {
        p.temperature = 0, p.min_tokens = 5, p.end_tokens = {17, 3000};
      },
  };
  std::vector<TestRequest> requests;
  for (int logprobs : {-1, 0, 5})
    for (size_t i = 0; i < ways.size(); i++) {
      SamplingParams params;
      params.seed = 100 + i;
      if (logprobs >= 0) params.logprobs = logprobs;
      ways[i](params);
      const auto number = uint32_t(requests.size());
      requests.push_back(
          {some_tokens(1 + int(number % 9), number, kVocab), 6, params, int(number) / 8});
    }
  return requests;
}

TEST(SamplingLayoutsTest, E08_EveryWayOfSamplingGivesTheSameBitsOnEveryLayout) {
  const auto requests = varied_requests();
  const auto expected = generate(open_wide, tiny_options(), requests);
  for (const TestOutput& output : expected) {
    ASSERT_EQ(output.error, "");
    ASSERT_EQ(output.tokens.size(), 6u);
  }
  struct Case {
    int tp, pp;
    std::vector<int> shares;
  };
  for (const Case& c : {Case{2, 1, {}}, Case{3, 1, {}}, Case{2, 1, {3, 1}}, Case{3, 1, {1, 5, 2}},
                        Case{2, 2, {}}, Case{1, 2, {}}}) {
    SCOPED_TRACE(concat("tp ", c.tp, " pp ", c.pp, " shares ", c.shares.size()));
    EXPECT_EQ(generate(open_wide, tiny_options(c.tp, c.pp, c.shares), requests), expected);
  }
}

// In halves, so that two of them sample at a time.
TEST(SamplingLayoutsTest, E08_MicroBatchesGiveTheSameBits) {
  const auto requests = varied_requests();
  const auto expected = generate(open_wide, tiny_options(), requests);
  ScheduleOptions schedule;
  schedule.change = [](std::vector<StepPlan>& plans) {
    for (StepPlan& plan : plans) plan.micro_batches = 2;
  };
  EXPECT_EQ(generate(open_wide, tiny_options(2), requests, schedule), expected);
}

}  // namespace
}  // namespace cohort::testing
