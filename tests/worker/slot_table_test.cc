// SPDX-License-Identifier: Apache-2.0
#include "worker/slot_table.h"

#include <gtest/gtest.h>

#include <functional>

namespace cohort {
namespace {

constexpr StepLimits kLimits{
    .max_slots = 3, .max_rows = 20, .max_context = 40, .blocks = 8, .in_flight = 2};
constexpr int64_t kVocab = 50;

StepLimits with_groups(int32_t groups) {
  StepLimits limits = kLimits;
  limits.dp = groups;
  return limits;
}

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
  explicit SlotTableTest(int32_t groups = 1, int dp = 0)
      : limits_(with_groups(groups)), table_(limits_, kVocab, dp) {}

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

  const StepLimits limits_;
  SlotTable table_;
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

// Three dp groups of three slots; this is a rank of the second: slots 3 to 5 are its own.
class GroupSlotTableTest : public SlotTableTest {
 protected:
  GroupSlotTableTest() : SlotTableTest(3, 1) {}
};

TEST_F(GroupSlotTableTest, KeepsItsOwnSequencesByTheirGlobalNumbers) {
  accept(plan({fresh(1, 5), fresh(4, 6), fresh(8, 7)}));
  EXPECT_TRUE(table_.at(4).used);
  EXPECT_EQ(table_.at(4).tokens.size(), 6u);
  EXPECT_FALSE(table_.at(3).used);
  EXPECT_FALSE(table_.at(5).used);
  table_.append(table_.ref(4), 9);
  accept(plan({next(1, 5), next(4, 6)}, {8}));
  EXPECT_EQ(table_.at(4).tokens.back(), 9);
  EXPECT_EQ(table_.at(4).computed, 7);
  // A plan in which this group has nothing to do, then its slot goes to another sequence.
  accept(plan({next(1, 6)}));
  accept(plan({fresh(4, 2)}, {4}));
  EXPECT_EQ(table_.at(4).tokens.size(), 2u);
}

TEST_F(GroupSlotTableTest, E21_LimitsAreThoseOfEachGroup) {
  accept(plan({fresh(1, 15), fresh(4, 15), fresh(8, 15)}));
  StepEntry more = fresh(0, 5), most = fresh(2, 16);
  most.new_blocks = more.new_blocks = {1};
  refuse(plan({more, most}), "21 rows of dp group 0");
  accept(plan({most}));
}

TEST_F(GroupSlotTableTest, E21_RefusesMisuseOfAnotherGroupsSlots) {
  accept(plan({fresh(1, 5), fresh(4, 5)}));
  refuse(plan({next(9, 5)}), "no slot 9");
  refuse(plan({next(1, 5), next(1, 6)}), "twice");
  refuse(plan({}, {9}), "frees slot 9");
  refuse(plan({}, {1, 1}), "frees slot 1");
  refuse(plan({next(1, 5)}, {1}), "not in use");
  refuse(plan({next(1, 40)}), "not within the context");
  refuse(plan({next(1, -1)}), "not within the context");
  StepEntry entry = next(1, 5);
  entry.new_blocks = {8};
  refuse(plan({entry}), "no block 8");
  entry = fresh(2, 5);
  entry.length = 6;
  refuse(plan({entry}), "5 tokens");
  StepPlan other = plan({next(1, 5)});
  other.entries[0].sample = false;
  refuse(other, "running checksum");
  accept(plan({next(1, 5), next(4, 5)}));
}

TEST_F(GroupSlotTableTest, E21_RefusesCutsAndCopiesThatCannotBe) {
  const auto changed = [&](int32_t micro_batches, std::vector<ExpertCopy> copies) {
    StepPlan changed = plan({fresh(4, 5)});
    changed.micro_batches = micro_batches;
    changed.copies = std::move(copies);
    changed.checksum = chain_checksum(checksum_, changed);
    return changed;
  };
  refuse(changed(0, {}), "cut in 0");
  refuse(changed(3, {}), "cut in 3");
  refuse(changed(1, {{.layer = 0, .expert = 1, .dp = 3, .add = true}}), "dp group 3 of 3");
  refuse(changed(1, {{.layer = -1, .expert = 1, .dp = 0, .add = true}}), "layer -1");
  accept(changed(2, {{.layer = 3, .expert = 1, .dp = 2, .add = true}}));
}

}  // namespace
}  // namespace cohort
