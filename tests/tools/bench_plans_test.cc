// SPDX-License-Identifier: Apache-2.0
// What `cohort bench model` measures is what it says: so many sequences, each at its position, in
// chunks of the worker's size, over a cache that holds what it should.
#include "tools/bench/model_plans.h"

#include <gtest/gtest.h>

#include "kernels/kv_layout.h"
#include "tests/support/replay.h"
#include "tests/support/spawn_ranks.h"
#include "worker/rank.h"
#include "worker/slot_table.h"

namespace cohort::bench {
namespace {

using testing::require_ok;

constexpr int64_t kVocab = 272;
constexpr DecodeSize kSize{.context = 21, .steps = 4};

StepLimits limits_for(int32_t prompt, int32_t sequences) {
  StepLimits limits;
  limits.max_slots = 4;
  limits.max_rows = 16;
  limits.max_context = 64;
  limits.blocks = blocks_needed(prompt, sequences, kSize);
  return limits;
}

int64_t rows_of_all(const std::vector<StepPlan>& plans) {
  int64_t rows = 0;
  for (const StepPlan& plan : plans) rows += plan.rows();
  return rows;
}

TEST(BenchPlans, AreAcceptedOneAfterTheOther) {
  const StepLimits limits = limits_for(40, 3);
  SlotTable slots(limits, kVocab, 0);
  PlanMaker maker(limits, kVocab, kSize);
  const auto apply = [&](const std::vector<StepPlan>& plans) {
    for (const StepPlan& plan : plans) {
      const Status applied = slots.apply(plan);
      ASSERT_TRUE(applied.ok()) << applied.to_string();
      // A rank appends what it samples.
      for (const StepEntry& entry : plan.entries) EXPECT_LE(entry.length, limits.max_rows);
    }
  };
  apply(maker.prefill(40));
  apply(maker.prefill(7));
  apply(maker.fill(3));
  apply({maker.start(3)});
  apply(maker.decode());
  apply({maker.start(1)});
  apply(maker.decode());
  apply({maker.start(2)});
  apply(maker.decode());
}

TEST(BenchPlans, AChunkIsWhatAStepMayHold) {
  PlanMaker maker(limits_for(40, 1), kVocab, kSize);
  const auto plans = maker.prefill(40);
  ASSERT_EQ(plans.size(), 3u);
  EXPECT_EQ(rows_of_all(plans), 40);
  EXPECT_EQ(plans[0].rows(), 16);
  EXPECT_EQ(plans[2].rows(), 8);
  EXPECT_FALSE(plans[1].entries[0].sample);
  EXPECT_TRUE(plans[2].entries[0].sample);
}

TEST(BenchPlans, ADecodeHasOneRowOfEachSequenceBehindItsContext) {
  PlanMaker maker(limits_for(1, 3), kVocab, kSize);
  EXPECT_EQ(rows_of_all(maker.fill(3)), 3 * kSize.context);
  const StepPlan start = maker.start(2);
  ASSERT_EQ(start.entries.size(), 2u);
  EXPECT_EQ(start.entries[0].start, kSize.context);
  const auto plans = maker.decode();
  ASSERT_EQ(plans.size(), size_t(kSize.steps));
  for (size_t i = 0; i < plans.size(); i++) {
    ASSERT_EQ(plans[i].entries.size(), 2u);
    for (const StepEntry& entry : plans[i].entries) {
      EXPECT_EQ(entry.length, 1);
      EXPECT_EQ(entry.start, kSize.context + 1 + int32_t(i));
      EXPECT_TRUE(entry.sample);
    }
  }
}

TEST(BenchPlans, SequencesShareNoBlock) {
  PlanMaker maker(limits_for(1, 3), kVocab, kSize);
  (void)maker.fill(3);
  std::vector<int32_t> blocks;
  for (const StepEntry& entry : maker.start(3).entries)
    blocks.insert(blocks.end(), entry.new_blocks.begin(), entry.new_blocks.end());
  std::sort(blocks.begin(), blocks.end());
  EXPECT_EQ(std::unique(blocks.begin(), blocks.end()), blocks.end());
  EXPECT_EQ(blocks.size(), size_t(3 * ((kSize.positions() + 15) / 16)));
}

// Tokens that sequences get when they start again, and those of the same prompts by themselves.
TEST(BenchPlans, SequencesThatStartAgainSayWhatTheyWouldSay) {
  ReplicaOptions options = testing::tiny_options(1, 1);
  options.model = "tests/data/tiny_models/llama3";
  std::vector<testing::TestRequest> requests;
  std::vector<std::vector<int32_t>> heard(2), again(2);
  testing::spawn_ranks(1, [&](World& world) {
    const auto rank = require_ok(Rank::load(world, options, {}));
    PlanMaker maker(rank->limits(), rank->config().vocab, kSize);
    const auto run = [&](const StepPlan& plan, std::vector<std::vector<int32_t>>* out) {
      const auto result = require_ok(rank->execute(plan));
      for (const SlotResult& slot : result->slots)
        if (out != nullptr) (*out)[size_t(slot.slot)].push_back(slot.sampled.token);
    };
    for (const StepPlan& plan : maker.fill(2)) run(plan, nullptr);
    for (auto* out : {&heard, &again}) {
      const StepPlan start = maker.start(2);
      if (requests.empty())
        for (const StepEntry& entry : start.entries)
          requests.push_back(
              {entry.sequence->tokens, kSize.steps + 1, entry.sequence->sampling, 0});
      run(start, out);
      for (const StepPlan& plan : maker.decode()) run(plan, out);
    }
  });
  EXPECT_EQ(heard, again);
  const auto outputs = testing::generate(
      [&] { return std::shared_ptr<Checkpoint>(require_ok(Checkpoint::open(options.model))); },
      options, requests, {});
  ASSERT_EQ(outputs.size(), 2u);
  for (size_t i = 0; i < 2; i++) {
    std::vector<int32_t> expected;
    for (const SampledToken& token : outputs[i].tokens) expected.push_back(token.token);
    EXPECT_EQ(heard[i], expected);
  }
}

}  // namespace
}  // namespace cohort::bench
