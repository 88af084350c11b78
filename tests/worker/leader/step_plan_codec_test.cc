// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>

#include "worker/step_plan.h"

namespace cohort {
namespace {

StepPlan example_plan() {
  StepPlan plan;
  plan.epoch = 0x0123456789abcdef;
  plan.step = 42;
  plan.frees = {3, 1};
  plan.entries.push_back(
      {.slot = 2, .start = 17, .length = 1, .sample = true, .new_blocks = {}, .sequence = {}});
  NewSequence sequence;
  sequence.tokens = {1, 2, 3, 4};
  sequence.prompt_tokens = 3;
  sequence.sampling.temperature = 0.25f;
  sequence.sampling.top_k = 4;
  sequence.sampling.seed = ~uint64_t{0};
  sequence.sampling.logit_bias = {{5, -1.5f}, {6, 2.f}};
  sequence.sampling.end_tokens = {0, 2};
  sequence.sampling.logprobs = 0;
  plan.entries.push_back({.slot = 0,
                          .start = 0,
                          .length = 4,
                          .sample = true,
                          .new_blocks = {9, 8},
                          .sequence = sequence});
  plan.checksum = 99;
  return plan;
}

StepResult example_result() {
  StepResult result;
  result.step = 42;
  result.compute_seconds = 0.125;
  SlotResult good, bad;
  good.slot = 2;
  good.sampled = {7, -0.5f, {{7, -0.5f}, {8, -1.f}}, true};
  bad.slot = 0;
  bad.sampled.finite = false;
  bad.error = "layer 7, attention: value is not finite";
  result.slots = {good, bad};
  return result;
}

TEST(StepPlanCodec, RoundTrip) {
  const auto plan = decode_step_plan(encode(example_plan()));
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(*plan, example_plan());
  const auto result = decode_step_result(encode(example_result()));
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(*result, example_result());
}

TEST(StepPlanCodec, EveryCutIsRefused) {
  const std::string plan = encode(example_plan()), result = encode(example_result());
  for (size_t n = 0; n < plan.size(); ++n) EXPECT_FALSE(decode_step_plan(plan.substr(0, n)).ok());
  for (size_t n = 0; n < result.size(); ++n)
    EXPECT_FALSE(decode_step_result(result.substr(0, n)).ok());
  EXPECT_FALSE(decode_step_plan(plan + '\0').ok());
  EXPECT_FALSE(decode_step_result(result + '\0').ok());
  EXPECT_FALSE(decode_step_plan(result).ok());
}

TEST(StepPlanCodec, DamageIsRefusedOrHasOneReading) {
  std::mt19937 random(1);
  const std::string plan = encode(example_plan());
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = plan;
    bytes[random() % bytes.size()] = char(random());
    bytes[random() % bytes.size()] = char(random());
    const auto decoded = decode_step_plan(bytes);
    if (decoded.ok()) {
      EXPECT_EQ(encode(*decoded), bytes);
    } else {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(StepPlanCodec, ChecksumSeesEveryBitAndTheOrder) {
  const StepPlan plan = example_plan();
  const uint64_t sum = chain_checksum(1, plan);
  EXPECT_NE(sum, chain_checksum(2, plan));
  StepPlan other = plan;
  other.checksum = 1;
  EXPECT_EQ(sum, chain_checksum(1, other)) << "its own field does not count";
  for (int bit = 0; bit < 32; ++bit) {
    other = plan;
    other.entries[1].sequence->tokens[3] ^= int32_t(1u << bit);
    EXPECT_NE(sum, chain_checksum(1, other));
    other = plan;
    other.entries[0].start ^= int32_t(1u << bit);
    EXPECT_NE(sum, chain_checksum(1, other));
  }
  const uint64_t first_second = chain_checksum(sum, other);
  EXPECT_NE(first_second, chain_checksum(chain_checksum(1, other), plan));
}

}  // namespace
}  // namespace cohort
