// SPDX-License-Identifier: Apache-2.0
#include "worker/result_merge.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

constexpr StepLimits kLimits{.dp = 3, .max_slots = 2};

StepPlan plan(uint64_t step, const std::vector<int32_t>& slots) {
  StepPlan plan;
  plan.step = step;
  for (const int32_t slot : slots)
    plan.entries.push_back(
        {.slot = slot, .start = 0, .length = 1, .sample = true, .new_blocks = {}, .sequence = {}});
  return plan;
}

StepResult result(uint64_t step, const std::vector<int32_t>& slots, double seconds = 0) {
  StepResult result{.step = step, .slots = {}, .compute_seconds = seconds};
  for (const int32_t slot : slots) {
    SlotResult one;
    one.slot = slot;
    one.sampled.token = 100 + slot;
    result.slots.push_back(one);
  }
  return result;
}

void add(ResultMerge& merge, int dp, const StepResult& result) {
  const Status status = merge.add(dp, result);
  ASSERT_TRUE(status.ok()) << status.to_string();
}

TEST(ResultMerge, SlotsComeInPlanOrderWithTheLongestTime) {
  ResultMerge merge(kLimits);
  merge.expect(plan(1, {5, 1, 0, 3}));
  add(merge, 0, result(1, {1, 0}, 0.25));
  EXPECT_FALSE(merge.take());
  EXPECT_EQ(merge.missing(), (std::vector<int>{1, 2}));
  add(merge, 2, result(1, {5}, 0.75));
  add(merge, 1, result(1, {3}, 0.5));
  EXPECT_EQ(merge.take(), result(1, {5, 1, 0, 3}, 0.75));
  EXPECT_FALSE(merge.take());
  EXPECT_TRUE(merge.missing().empty());
}

TEST(ResultMerge, SamplersMayBeStepsApart) {
  ResultMerge merge(kLimits);
  merge.expect(plan(1, {0, 2}));
  merge.expect(plan(2, {4}));
  add(merge, 2, result(1, {}));
  add(merge, 2, result(2, {4}));
  add(merge, 1, result(1, {2}));
  add(merge, 1, result(2, {}));
  EXPECT_FALSE(merge.take());
  EXPECT_EQ(merge.missing(), std::vector<int>{0});
  add(merge, 0, result(1, {0}));
  EXPECT_EQ(merge.take(), result(1, {0, 2}));
  EXPECT_FALSE(merge.take());
  merge.expect(plan(3, {1}));
  add(merge, 0, result(2, {}));
  EXPECT_EQ(merge.take(), result(2, {4}));
  EXPECT_EQ(merge.missing(), (std::vector<int>{0, 1, 2}));
}

TEST(ResultMerge, AnswersThatNobodyAskedForAreErrors) {
  ResultMerge merge(kLimits);
  EXPECT_EQ(merge.add(0, result(1, {})).code(), Code::kInternal);
  merge.expect(plan(1, {0, 2}));
  merge.expect(plan(2, {0}));
  const auto refuse = [&](int dp, const StepResult& result, const std::string& why) {
    const Status status = merge.add(dp, result);
    EXPECT_EQ(status.code(), Code::kInternal);
    EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
  };
  refuse(0, result(2, {0}), "answered step 2 where 1 was expected");
  refuse(0, result(1, {2}), "slot 2");
  refuse(0, result(1, {1}), "slot 1");
  refuse(1, result(1, {0}), "slot 0");
  add(merge, 0, result(1, {0}));
  refuse(0, result(1, {0}), "answered step 1 where 2 was expected");
  add(merge, 0, result(2, {0}));
  refuse(0, result(3, {}), "all plans were answered");
  EXPECT_FALSE(merge.take());
}

TEST(ResultMerge, OneGroupIsAnsweredAtOnce) {
  ResultMerge merge({.dp = 1, .max_slots = 4});
  for (uint64_t step = 7; step < 10; ++step) {  // a record need not begin with the first step
    merge.expect(plan(step, {3, 1}));
    add(merge, 0, result(step, {3, 1}, 0.125));
    EXPECT_EQ(merge.take(), result(step, {3, 1}, 0.125));
  }
}

}  // namespace
}  // namespace cohort
