// SPDX-License-Identifier: Apache-2.0
#include "worker/slot_table.h"

#include <gtest/gtest.h>

#include <functional>

namespace cohort {
namespace {

constexpr StepLimits kLimits{
    .max_slots = 3, .max_rows = 20, .max_context = 40, .blocks = 8, .in_flight = 2};
constexpr int64_t kVocab = 50;

StepEntry fresh(int32_t slot, int32_t tokens) {
  NewSequence sequence{std::vector<int32_t>(size_t(tokens), 7), tokens, {}};
  return {.slot = slot,
          .start = 0,
          .length = tokens,
          .sample = true,
          .new_blocks = {0},
          .sequence = std::move(sequence)};
}

StepEntry next(int32_t slot, int32_t start) {
  return {
      .slot = slot, .start = start, .length = 1, .sample = true, .new_blocks = {}, .sequence = {}};
}

class SlotTableTest : public ::testing::Test {
 protected:
  StepPlan plan(std::vector<StepEntry> entries, std::vector<int32_t> frees = {}) const {
    StepPlan plan{.epoch = 1,
                  .step = step_ + 1,
                  .frees = std::move(frees),
                  .entries = std::move(entries),
                  .checksum = 0};
    plan.checksum = chain_checksum(checksum_, plan);
    return plan;
  }
  void accept(const StepPlan& plan) {
    const Status status = table_.apply(plan);
    ASSERT_TRUE(status.ok()) << status.to_string();
    step_ = plan.step;
    checksum_ = plan.checksum;
  }
  void refuse(const StepPlan& plan, const std::string& why) {
    const Status status = table_.apply(plan);
    EXPECT_EQ(status.code(), Code::kInternal);
    EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
  }

  SlotTable table_{kLimits, kVocab};
  uint64_t step_ = 0, checksum_ = 0;
};

TEST_F(SlotTableTest, FollowsPlans) {
  accept(plan({fresh(1, 5)}));
  table_.append(table_.ref(1), 9);
  accept(plan({next(1, 5)}));
  EXPECT_EQ(table_.at(1).tokens, (std::vector<int32_t>{7, 7, 7, 7, 7, 9}));
  EXPECT_EQ(table_.at(1).computed, 6);
  EXPECT_EQ(table_.at(1).blocks, std::vector<int32_t>{0});
}

TEST_F(SlotTableTest, ATokenOfAnEarlierLifeIsDropped) {
  accept(plan({fresh(1, 5)}));
  const SlotRef earlier = table_.ref(1);
  accept(plan({fresh(1, 2)}, {1}));
  table_.append(earlier, 9);
  EXPECT_EQ(table_.at(1).tokens.size(), 2u);
  table_.append(table_.ref(1), 9);
  EXPECT_EQ(table_.at(1).tokens.size(), 3u);
}

TEST_F(SlotTableTest, E21_RefusesPlansThatAreNotTheNextOne) {
  accept(plan({fresh(1, 5)}));
  StepPlan lost = plan({next(1, 5)});
  lost.step++;
  refuse(lost, "step 2 was expected");
  StepPlan other = plan({next(1, 5)});
  other.checksum ^= 1;
  refuse(other, "running checksum");
  StepPlan epoch = plan({next(1, 5)});
  epoch.epoch = 2;
  refuse(epoch, "epoch");
  accept(plan({next(1, 5)}));  // a refused plan has changed nothing
}

TEST_F(SlotTableTest, RefusesWhatDoesNotFit) {
  accept(plan({fresh(1, 5)}));
  refuse(plan({fresh(1, 5)}), "in use already");
  refuse(plan({next(0, 5)}), "not in use");
  refuse(plan({next(3, 5)}), "no slot 3");
  refuse(plan({next(-1, 5)}), "no slot -1");
  refuse(plan({next(1, 5), next(1, 5)}), "twice");
  refuse(plan({}, {0}), "frees slot 0");
  refuse(plan({}, {1, 1}), "frees slot 1");
  refuse(plan({next(1, 5)}, {1}), "not in use");
  refuse(plan({next(1, 6)}), "5 positions are computed");
  refuse(plan({next(1, -1)}), "not within the context");
  refuse(plan({fresh(0, 21)}), "limit of 20");
  accept(plan({next(1, 5)}, {}));
}

TEST_F(SlotTableTest, RefusesSequencesThatDoNotFit) {
  const auto refuse_changed = [&](const std::function<void(StepEntry&)>& change, const char* why) {
    StepEntry entry = fresh(0, 5);
    change(entry);
    refuse(plan({entry}), why);
  };
  refuse_changed([](StepEntry& e) { e.new_blocks = {8}; }, "no block 8");
  refuse_changed([](StepEntry& e) { e.new_blocks = {-1}; }, "no block -1");
  refuse_changed([](StepEntry& e) { e.new_blocks.clear(); }, "do not reach");
  refuse_changed([](StepEntry& e) { e.length = 0; }, "not within");
  refuse_changed([](StepEntry& e) { e.length = 6; }, "5 tokens");
  refuse_changed([](StepEntry& e) { e.sequence->prompt_tokens = 6; }, "6 of them prompt");
  refuse_changed([](StepEntry& e) { e.sequence->tokens[2] = 50; }, "vocabulary");
  refuse_changed([](StepEntry& e) { e.sequence->tokens[2] = -1; }, "vocabulary");
  accept(plan({fresh(0, 5)}));
}

}  // namespace
}  // namespace cohort
