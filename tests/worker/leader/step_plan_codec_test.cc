// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "worker/step_plan.h"

namespace cohort {
namespace {

StepPlan example_plan() {
  StepPlan plan;
  plan.epoch = 0x0123456789abcdef;
  plan.step = 42;
  plan.micro_batches = 2;
  plan.copies = {{.layer = 5, .expert = 60, .dp = 1, .add = true},
                 {.layer = 0, .expert = 2, .dp = 0, .add = false}};
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

TEST(StepPlanCodec, FieldsOutOfTheirBoundsAreRefused) {
  const auto refuse_changed = [](const std::function<void(StepPlan&)>& change) {
    StepPlan plan = example_plan();
    change(plan);
    EXPECT_EQ(decode_step_plan(encode(plan)).status().code(), Code::kDataLoss);
  };
  refuse_changed([](StepPlan& p) { p.micro_batches = 0; });
  refuse_changed([](StepPlan& p) { p.micro_batches = 3; });
  refuse_changed([](StepPlan& p) { p.copies[1].layer = -1; });
  refuse_changed([](StepPlan& p) { p.copies[1].expert = -1; });
  refuse_changed([](StepPlan& p) { p.copies[1].dp = -1; });
  refuse_changed([](StepPlan& p) { p.entries[0].slot = -1; });
  // More copies than bytes could hold.
  std::string bytes = encode(example_plan());
  const size_t count_at = 4 + 8 + 8 + 4;
  ASSERT_EQ(bytes[count_at], 2);
  bytes[count_at + 3] = 0x7f;
  EXPECT_EQ(decode_step_plan(bytes).status().code(), Code::kDataLoss);
}

TEST(StepPlanCodec, ChecksumSeesTheNewestFields) {
  const uint64_t sum = chain_checksum(1, example_plan());
  const auto differs = [&](const std::function<void(StepPlan&)>& change) {
    StepPlan plan = example_plan();
    change(plan);
    return chain_checksum(1, plan) != sum;
  };
  EXPECT_TRUE(differs([](StepPlan& p) { p.micro_batches = 1; }));
  EXPECT_TRUE(differs([](StepPlan& p) { p.copies.pop_back(); }));
  EXPECT_TRUE(differs([](StepPlan& p) { p.copies[0].layer = 6; }));
  EXPECT_TRUE(differs([](StepPlan& p) { p.copies[0].expert = 61; }));
  EXPECT_TRUE(differs([](StepPlan& p) { p.copies[0].dp = 0; }));
  EXPECT_TRUE(differs([](StepPlan& p) { p.copies[0].add = false; }));
}

TEST(StepPlanParts, EveryEntryIsInThePartOfItsGroup) {
  const StepLimits limits{.dp = 3, .max_slots = 2};
  const StepPlan plan = example_plan();  // entries of slots 2 and 0, frees of 3 and 1
  const StepPlan first = part_of(plan, 0, limits), second = part_of(plan, 1, limits);
  const StepPlan third = part_of(plan, 2, limits);
  EXPECT_EQ(first.entries, std::vector{plan.entries[1]});
  EXPECT_EQ(first.frees, std::vector<int32_t>{1});
  EXPECT_EQ(second.entries, std::vector{plan.entries[0]});
  EXPECT_EQ(second.frees, std::vector<int32_t>{3});
  EXPECT_TRUE(third.entries.empty() && third.frees.empty());
  for (const StepPlan& part : {first, second, third}) {
    StepPlan whole = part;  // the rest is that of the plan
    whole.entries = plan.entries;
    whole.frees = plan.frees;
    EXPECT_EQ(whole, plan);
  }
  EXPECT_EQ(rows_of(plan, limits), (std::vector<int64_t>{4, 1, 0}));
  EXPECT_EQ(most_rows(plan, limits), 4);
  EXPECT_EQ(part_of(plan, 0, {.dp = 1, .max_slots = 6}), plan);
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
