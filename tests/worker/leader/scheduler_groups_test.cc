// SPDX-License-Identifier: Apache-2.0
// Single rules of the scheduler for dp groups: where sequences go, and that groups do not touch
// each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "fake_executor.h"
#include "worker/leader/scheduler.h"

namespace cohort {
namespace {

StepLimits limits(int dp, int blocks = 100, int slots = 4, int context = 128) {
  return {.dp = dp,
          .max_slots = slots,
          .max_rows = 32,
          .max_context = context,
          .blocks = blocks,
          .in_flight = 1};
}

SequenceRequest request(uint64_t id, int prompt, int max_tokens, int32_t first_token) {
  SequenceRequest r;
  r.id = {id, 1};
  for (int i = 0; i < prompt; ++i) r.prompt.push_back(first_token + i);
  r.max_tokens = max_tokens;
  return r;
}

// A scheduler and its simulated ranks, one plan at a time.
class World {
 public:
  explicit World(const StepLimits& limits) : limits_(limits), scheduler(limits, 1), fake(limits) {}

  void admit(const SequenceRequest& request) {
    const Status status = scheduler.admit(request);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  StepPlan step(int32_t budget = 32) {
    const auto plan = scheduler.plan(budget);
    EXPECT_TRUE(plan);
    if (!plan) return {};
    const Status status = fake.submit(*plan);
    EXPECT_TRUE(status.ok()) << status.to_string();
    const auto result = fake.next_result();
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    EXPECT_TRUE(scheduler.commit(*result).ok());
    EXPECT_TRUE(scheduler.check_integrity().ok());
    for (const SequenceEvent& event : scheduler.take_events())
      if (event.finish) ends[event.id.request] = plan->step;
    return *plan;
  }
  // Admits a sequence and takes a step: the group that it starts in, -1 if it waits.
  int place(const SequenceRequest& request) {
    admit(request);
    for (const StepEntry& entry : step().entries)
      if (entry.sequence && entry.sequence->tokens == request.prompt)
        return dp_of(entry.slot, limits_);
    return -1;
  }
  std::vector<int64_t> rows(const StepPlan& plan) const { return rows_of(plan, limits_); }
  std::vector<int32_t> running() const {
    std::vector<int32_t> counts;
    for (const GroupLoad& group : scheduler.load().groups) counts.push_back(group.running);
    return counts;
  }

 private:
  const StepLimits limits_;

 public:
  Scheduler scheduler;
  FakeExecutor fake;
  std::map<uint64_t, uint64_t> ends;  // request: the step at which it ended
};

TEST(SchedulerGroups, OnePlanHasRowsForEveryGroup) {
  World world(limits(3));
  for (uint64_t id = 1; id <= 6; ++id) world.admit(request(id, 16, 10, int32_t(100 * id)));
  const StepPlan first = world.step();
  EXPECT_EQ(world.rows(first), (std::vector<int64_t>{32, 32, 32}));
  EXPECT_EQ(world.running(), (std::vector<int32_t>{2, 2, 2}));
  // Entries of a group stand together, in the order of the groups.
  EXPECT_TRUE(std::ranges::is_sorted(first.entries, {},
                                     [](const StepEntry& e) { return dp_of(e.slot, limits(3)); }));
  EXPECT_EQ(world.rows(world.step()), (std::vector<int64_t>{2, 2, 2}));
  const SchedulerLoad load = world.scheduler.load();
  EXPECT_EQ(load.running, 6);
  EXPECT_EQ(load.blocks.total, 300);
  EXPECT_EQ(load.blocks.held, 6 * 2);
  EXPECT_EQ(load.groups[1].blocks.held, 2 * 2);
}

TEST(SchedulerGroups, GroupsMayHaveNothingToDo) {
  World world(limits(4));
  ASSERT_EQ(world.place(request(1, 5, 10, 100)), 0);
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(world.rows(world.step()), (std::vector<int64_t>{1, 0, 0, 0}));
  EXPECT_EQ(world.place(request(2, 5, 10, 200)), 1);
}

TEST(SchedulerGroups, TheRowBudgetIsThatOfEachGroup) {
  World world(limits(2));
  for (uint64_t id = 1; id <= 2; ++id) world.admit(request(id, 60, 4, int32_t(100 * id)));
  EXPECT_EQ(world.rows(world.step(20)), (std::vector<int64_t>{20, 20}));
  EXPECT_EQ(world.rows(world.step(32)), (std::vector<int64_t>{32, 32}));
}

TEST(SchedulerGroups, ACachedPrefixAttractsWhileTheGroupsAreEvenlyFull) {
  World world(limits(2, 4000, 16));
  ASSERT_EQ(world.place(request(1, 30, 90, 300)), 0);
  ASSERT_EQ(world.place(request(2, 30, 90, 600)), 1);
  // The next ones begin like the second: each is one more than the other group has.
  for (uint64_t id = 3; id <= 5; ++id) EXPECT_EQ(world.place(request(id, 30, 90, 600)), 1) << id;
  // Four slots of sixteen more than the other: that is no longer close.
  EXPECT_EQ(world.running(), (std::vector<int32_t>{1, 4}));
  EXPECT_EQ(world.place(request(6, 30, 90, 600)), 1);
  EXPECT_EQ(world.place(request(7, 30, 90, 600)), 0);
  for (uint64_t id = 8; id <= 20; ++id) world.place(request(id, 30, 90, 600));
  const auto counts = world.running();
  EXPECT_LE(std::abs(counts[0] - counts[1]), 5);
}

TEST(SchedulerGroups, OneFullGroupDoesNotHoldBackWhatAnotherHasRoomFor) {
  World world(limits(2, 8));
  EXPECT_EQ(world.place(request(1, 100, 5, 100)), 0);
  EXPECT_EQ(world.place(request(2, 100, 5, 300)), 1);
  EXPECT_EQ(world.place(request(3, 100, 5, 500)), -1) << "neither has seven blocks left";
  while (!world.ends.contains(1)) world.step();
  while (!world.ends.contains(3)) world.step();
  EXPECT_EQ(world.scheduler.load().preemptions, 0u);

  World narrow(limits(2, 100, 1));
  EXPECT_EQ(narrow.place(request(1, 5, 20, 100)), 0);
  EXPECT_EQ(narrow.place(request(2, 5, 20, 200)), 1);
  EXPECT_EQ(narrow.place(request(3, 5, 20, 300)), -1) << "there are two slots";
}

TEST(SchedulerGroups, ASequenceMustFitInOneGroup) {
  Scheduler scheduler(limits(4, 6), 1);
  EXPECT_TRUE(scheduler.admit(request(1, 90, 6, 100)).ok());
  EXPECT_EQ(scheduler.admit(request(2, 90, 8, 100)).code(), Code::kInvalidArgument);
}

TEST(SchedulerGroups, E14_ACancelInOneGroupChangesNothingInAnother) {
  World world(limits(2)), other(limits(2));
  for (World* w : {&world, &other}) {
    ASSERT_EQ(w->place(request(1, 40, 50, 100)), 0);
    ASSERT_EQ(w->place(request(2, 40, 50, 300)), 1);
    w->step();
  }
  ASSERT_TRUE(world.scheduler.cancel({1, 1}));
  EXPECT_EQ(world.running(), (std::vector<int32_t>{0, 1}));
  for (int i = 0; i < 20; ++i) {
    const StepPlan plan = world.step();
    EXPECT_EQ(part_of(plan, 1, limits(2)).entries, part_of(other.step(), 1, limits(2)).entries);
    EXPECT_TRUE(part_of(plan, 0, limits(2)).entries.empty());
    EXPECT_EQ(plan.frees, i == 0 ? std::vector<int32_t>{0} : std::vector<int32_t>{});
  }
}

TEST(SchedulerGroups, E15_PreemptionInOneGroupDoesNotSlowAnother) {
  World world(limits(2, 16, 16, 256));
  // Many undisturbed steps make admission bold.
  for (uint64_t id = 1; id <= 3; ++id) {
    world.admit(request(id, 2, 240, int32_t(100 * id)));
    while (!world.scheduler.idle()) world.step();
  }
  ASSERT_EQ(world.scheduler.load().preemptions, 0u);
  // One long sequence that fills most of its group; three that grow out of the other.
  ASSERT_EQ(world.place(request(10, 150, 100, 500)), 0);
  const uint64_t started = world.scheduler.load().steps;
  for (uint64_t id = 11; id <= 13; ++id)
    ASSERT_EQ(world.place(request(id, 2, 240, int32_t(10 * id))), 1);
  while (!world.ends.contains(10)) world.step();
  EXPECT_GT(world.scheduler.load().preemptions, 0u);
  // 150 rows of prefill in chunks of 32, the last of which gives the first of 100 tokens.
  EXPECT_EQ(world.ends[10], started + 4 + 99);
  while (!world.scheduler.idle()) world.step();
  for (uint64_t id = 11; id <= 13; ++id) EXPECT_TRUE(world.ends.contains(id));
}

TEST(SchedulerGroups, WhatIsNotDecidedHereIsUnderTheChecksum) {
  Scheduler scheduler(limits(2), 1);
  ASSERT_TRUE(scheduler.admit(request(1, 5, 5, 100)).ok());
  const std::vector<ExpertCopy> copies = {{.layer = 1, .expert = 2, .dp = 1, .add = true}};
  const auto plan = scheduler.plan(32, [&](StepPlan& p) {
    EXPECT_EQ(p.entries.size(), 1u);
    p.micro_batches = 2;
    p.copies = copies;
  });
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->micro_batches, 2);
  EXPECT_EQ(plan->copies, copies);
  EXPECT_EQ(plan->checksum, chain_checksum(0, *plan));
}

}  // namespace
}  // namespace cohort
