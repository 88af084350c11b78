// SPDX-License-Identifier: Apache-2.0
#include "worker/leader/step_time_model.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

TEST(StepTimeModel, FindsTheLineAndFollowsIt) {
  StepTimeModel model;
  EXPECT_EQ(model.step_seconds(), 0);
  for (int i = 0; i < 50; ++i) model.add(1 + i % 7 * 10, 0.01 + 0.001 * (1 + i % 7 * 10));
  EXPECT_NEAR(model.step_seconds(), 0.01, 1e-6);
  EXPECT_NEAR(model.token_seconds(), 0.001, 1e-7);
  for (int i = 0; i < 2000; ++i) model.add(1 + i % 7 * 10, 0.02 + 0.003 * (1 + i % 7 * 10));
  EXPECT_NEAR(model.step_seconds(), 0.02, 1e-4);
  EXPECT_NEAR(model.token_seconds(), 0.003, 1e-5);
}

TEST(StepTimeModel, StepsOfOneSizeGiveNoSlope) {
  StepTimeModel model;
  for (int i = 0; i < 50; ++i) model.add(4, 0.1);
  EXPECT_EQ(model.token_seconds(), 0);
  EXPECT_NEAR(model.step_seconds(), 0.1, 1e-9);
  EXPECT_EQ(model.tokens_within(3, 4, 256), 256);
}

TEST(StepTimeModel, E19_BoundsTheChunkByTheDecodesTime) {
  StepTimeModel model;
  for (int i = 0; i < 50; ++i) model.add(1 + i % 7 * 10, 0.01 + 0.001 * (1 + i % 7 * 10));
  // One decode takes 11 ms; three times that is 33 ms: 23 tokens.
  EXPECT_NEAR(model.tokens_within(3, 1, 256), 23, 1);
  EXPECT_EQ(model.tokens_within(100, 1, 256), 256);
}

}  // namespace
}  // namespace cohort
