// SPDX-License-Identifier: Apache-2.0
// Single rules of the scheduler, step by step.
#include "worker/leader/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "fake_executor.h"

namespace cohort {
namespace {

StepLimits limits(int blocks = 100, int in_flight = 2) {
  return {
      .max_slots = 4, .max_rows = 32, .max_context = 128, .blocks = blocks, .in_flight = in_flight};
}

SequenceRequest request(uint64_t id, int prompt, int max_tokens, int32_t first_token = 100) {
  SequenceRequest r;
  r.id = {id, 1};
  for (int i = 0; i < prompt; ++i) r.prompt.push_back(first_token + i);
  r.max_tokens = max_tokens;
  return r;
}

StepResult answer(const StepPlan& plan, int32_t token = 50) {
  StepResult result;
  result.step = plan.step;
  for (const StepEntry& entry : plan.entries) {
    if (!entry.sample) continue;
    SlotResult slot;
    slot.slot = entry.slot;
    slot.sampled.token = token;
    result.slots.push_back(slot);
  }
  return result;
}

TEST(Scheduler, DecodesOneStepAheadAndNeverPastMaxTokens) {
  Scheduler scheduler(limits(), 1);
  ASSERT_TRUE(scheduler.admit(request(1, 5, 3)).ok());
  const auto prefill = scheduler.plan(), first = scheduler.plan();
  ASSERT_TRUE(prefill && first);
  EXPECT_FALSE(scheduler.plan()) << "two plans are in flight";
  EXPECT_EQ(prefill->entries[0].length, 5);
  EXPECT_EQ(first->entries[0].start, 5);
  EXPECT_FALSE(first->entries[0].sequence);
  ASSERT_TRUE(scheduler.commit(answer(*prefill)).ok());
  const auto second = scheduler.plan();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->entries[0].start, 6);
  ASSERT_TRUE(scheduler.commit(answer(*first)).ok());
  EXPECT_FALSE(scheduler.plan()) << "three tokens are made or under way";
  ASSERT_TRUE(scheduler.commit(answer(*second)).ok());
  const auto events = scheduler.take_events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[2].finish, FinishReason::length);
  EXPECT_TRUE(scheduler.idle());
}

TEST(Scheduler, DropsTheTokenAfterAnEnd) {
  Scheduler scheduler(limits(), 1);
  auto r = request(1, 5, 10);
  r.sampling.end_tokens = {50};
  ASSERT_TRUE(scheduler.admit(r).ok());
  const auto first = scheduler.plan(), ahead = scheduler.plan();
  ASSERT_TRUE(scheduler.commit(answer(*first)).ok());
  EXPECT_FALSE(scheduler.plan());
  ASSERT_TRUE(scheduler.commit(answer(*ahead)).ok());
  const auto events = scheduler.take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].finish, FinishReason::stop);
  EXPECT_EQ(events[0].token->token, 50);
}

// A sequence can be preempted and begin again while a step of its former life is under way. That
// step's result says nothing of the new life's blocks: were the third one, of which two rows are
// computed, remembered as full, the last sequence would read what nobody has written.
TEST(Scheduler, E15_AResultOfAFormerLifeMakesNoBlockKnown) {
  const StepLimits tight{
      .max_slots = 4, .max_rows = 2, .max_context = 128, .blocks = 13, .in_flight = 3};
  Scheduler scheduler(tight, 1);
  FakeExecutor fake(tight);
  const auto plan = [&] {
    const auto made = scheduler.plan();
    const Status status = made ? fake.submit(*made) : Status();
    ASSERT_TRUE(status.ok()) << status.to_string();
  };
  const auto commit_but = [&](int unanswered) {
    while (fake.unanswered() > unanswered) {
      const auto result = fake.next_result();
      ASSERT_TRUE(result.ok()) << result.status().to_string();
      ASSERT_TRUE(scheduler.commit(*result).ok());
    }
  };
  // Two that grow beyond what was kept for them, and a long prompt that has to give way.
  ASSERT_TRUE(scheduler.admit(request(1, 43, 40)).ok());
  ASSERT_TRUE(scheduler.admit(request(2, 43, 26, 300)).ok());
  for (int tick = 0; scheduler.load().preemptions == 0; ++tick) {
    ASSERT_LT(tick, 300);
    if (tick == 36) {
      ASSERT_TRUE(scheduler.admit(request(3, 57, 1, 500)).ok());
    }
    ASSERT_NO_FATAL_FAILURE(plan());
    ASSERT_NO_FATAL_FAILURE(commit_but(1));
  }
  ASSERT_TRUE(scheduler.cancel({1, 1}));  // its blocks are free at once
  ASSERT_NO_FATAL_FAILURE(plan());
  ASSERT_EQ(fake.unanswered(), 2) << "the new life begins while the old one's step is under way";
  ASSERT_TRUE(std::ranges::any_of(fake.plans().back().entries, [](const StepEntry& entry) {
    return entry.sequence && entry.sequence->tokens[0] == 500 && entry.start == 32;
  }));
  ASSERT_NO_FATAL_FAILURE(commit_but(1));
  ASSERT_TRUE(scheduler.cancel({3, 1}));
  ASSERT_TRUE(scheduler.admit(request(4, 57, 1, 500)).ok());
  while (!scheduler.idle()) {
    ASSERT_NO_FATAL_FAILURE(plan());
    ASSERT_NO_FATAL_FAILURE(commit_but(0));
  }
}

TEST(Scheduler, E14_ACancelledSequenceIsGoneWithinTwoSteps) {
  for (const int in_flight : {1, 2}) {
    Scheduler scheduler(limits(100, in_flight), 1);
    ASSERT_TRUE(scheduler.admit(request(1, 40, 50)).ok());
    ASSERT_TRUE(scheduler.admit(request(2, 10, 50, 500)).ok());
    std::deque<StepPlan> plans;
    for (int step = 0; step < 6; ++step) {
      while (auto plan = scheduler.plan()) plans.push_back(*plan);
      ASSERT_TRUE(scheduler.commit(answer(plans.front())).ok());
      plans.pop_front();
    }
    while (auto plan = scheduler.plan()) plans.push_back(*plan);
    EXPECT_TRUE(scheduler.cancel({1, 1}));
    EXPECT_FALSE(scheduler.cancel({1, 1}));
    EXPECT_EQ(scheduler.load().running, 1) << "its slot is free at once";
    for (int step = 0; step < 2; ++step) {
      ASSERT_TRUE(scheduler.commit(answer(plans.front())).ok());
      plans.pop_front();
      while (auto plan = scheduler.plan()) plans.push_back(*plan);
    }
    // The other one holds what its positions need, and no more.
    EXPECT_LE(scheduler.load().blocks.held, blocks_for(10 + 12));
    EXPECT_TRUE(scheduler.check_integrity().ok());
    for (const auto& event : scheduler.take_events())
      EXPECT_LT(event.index, event.id.request == 1 ? 8 : 12);
  }
}

TEST(Scheduler, ComputesTheLastTokenOfACachedPrompt) {
  Scheduler scheduler(limits(), 1);
  for (uint64_t id = 1; id <= 2; ++id) {
    ASSERT_TRUE(scheduler.admit(request(id, 32, 1)).ok());
    const auto plan = scheduler.plan();
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->entries[0].start, id == 1 ? 0 : 16);
    EXPECT_EQ(plan->entries[0].new_blocks.size(), 2u);
    ASSERT_TRUE(scheduler.commit(answer(*plan)).ok());
    EXPECT_EQ(scheduler.take_events().at(0).cached_tokens, id == 1 ? 0 : 16);
  }
  auto other_tenant = request(3, 32, 1);
  other_tenant.salt = "tenant";
  ASSERT_TRUE(scheduler.admit(other_tenant).ok());
  EXPECT_EQ(scheduler.plan()->entries[0].start, 0);
}

TEST(Scheduler, GeneratedBlocksAreCachedToo) {
  Scheduler scheduler(limits(100, 1), 1);
  ASSERT_TRUE(scheduler.admit(request(1, 16, 20)).ok());
  auto next = request(2, 16, 1);
  while (auto plan = scheduler.plan()) ASSERT_TRUE(scheduler.commit(answer(*plan, 60)).ok());
  // The next turn of a conversation: prompt, answer, and a new question.
  for (int i = 0; i < 20; ++i) next.prompt.push_back(60);
  next.prompt.push_back(3);
  ASSERT_TRUE(scheduler.admit(next).ok());
  EXPECT_EQ(scheduler.plan()->entries[0].start, 32);
}

TEST(Scheduler, LongPromptsComeInChunksBehindDecodes) {
  Scheduler scheduler(limits(100, 1), 1);
  ASSERT_TRUE(scheduler.admit(request(1, 4, 50)).ok());
  auto plan = scheduler.plan();
  ASSERT_TRUE(scheduler.commit(answer(*plan)).ok());
  ASSERT_TRUE(scheduler.admit(request(2, 100, 5, 300)).ok());
  plan = scheduler.plan();
  ASSERT_EQ(plan->entries.size(), 2u);
  EXPECT_EQ(plan->entries[0].length, 1) << "the decode";
  EXPECT_EQ(plan->entries[1].length, 31);
  EXPECT_FALSE(plan->entries[1].sample);
  ASSERT_TRUE(scheduler.commit(answer(*plan)).ok());
  plan = scheduler.plan(18);
  EXPECT_EQ(plan->rows(), 18) << "the row budget bounds the chunk";
  ASSERT_TRUE(scheduler.commit(answer(*plan)).ok());
  plan = scheduler.plan(1);
  EXPECT_EQ(plan->rows(), 17) << "but a prefill always goes on";
}

TEST(Scheduler, RefusesWhatCanNeverRun) {
  SchedulerOptions options;
  options.max_waiting = 1;
  options.vocabulary = 1000;
  Scheduler scheduler(limits(3), 1, options);
  const auto code = [&](SequenceRequest r) { return scheduler.admit(std::move(r)).code(); };
  EXPECT_EQ(code(request(1, 0, 5)), Code::kInvalidArgument);
  EXPECT_EQ(code(request(1, 5, 0)), Code::kInvalidArgument);
  EXPECT_EQ(code(request(1, 128, 5)), Code::kInvalidArgument);
  EXPECT_EQ(code(request(1, 5, 5, 998)), Code::kInvalidArgument);
  EXPECT_EQ(code(request(1, 5, 5, -3)), Code::kInvalidArgument);
  auto biased = request(1, 5, 5);
  biased.sampling.logit_bias = {{1000, 1.f}};
  EXPECT_EQ(code(biased), Code::kInvalidArgument);
  const Status too_big = scheduler.admit(request(1, 40, 10));
  EXPECT_EQ(too_big.code(), Code::kInvalidArgument);
  EXPECT_NE(too_big.message().find("4 KV blocks"), std::string::npos) << too_big.message();
  EXPECT_EQ(code(request(1, 40, 9)), Code::kOk) << "the last token needs no position";
  EXPECT_EQ(code(request(1, 5, 5)), Code::kAlreadyExists);
  EXPECT_EQ(code(request(2, 5, 5)), Code::kResourceExhausted);
}

TEST(Scheduler, ACompletePrefixEndsAtOnce) {
  Scheduler scheduler(limits(), 1);
  auto full = request(1, 5, 2);
  full.output_prefix = {1, 2};
  auto ended = request(2, 5, 9);
  ended.output_prefix = {1, 2};
  ended.sampling.end_tokens = {2};
  ASSERT_TRUE(scheduler.admit(full).ok());
  ASSERT_TRUE(scheduler.admit(ended).ok());
  const auto events = scheduler.take_events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].finish, FinishReason::length);
  EXPECT_EQ(events[1].finish, FinishReason::stop);
  EXPECT_EQ(events[1].index, 2);
  EXPECT_TRUE(scheduler.idle());
}

TEST(Scheduler, AnErrorEndsOnlyItsSequence) {
  Scheduler scheduler(limits(100, 1), 1);
  ASSERT_TRUE(scheduler.admit(request(1, 5, 5)).ok());
  ASSERT_TRUE(scheduler.admit(request(2, 5, 5, 300)).ok());
  auto plan = scheduler.plan();
  ASSERT_EQ(plan->entries.size(), 2u);
  StepResult result = answer(*plan);
  result.slots[0].error = "layer 3: value is not finite";
  ASSERT_TRUE(scheduler.commit(result).ok());
  plan = scheduler.plan();
  EXPECT_EQ(plan->frees.size(), 1u);
  EXPECT_EQ(plan->entries.size(), 1u);
  result = answer(*plan);
  result.slots[0].sampled.finite = false;
  ASSERT_TRUE(scheduler.commit(result).ok());
  const auto events = scheduler.take_events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].error, "layer 3: value is not finite");
  EXPECT_EQ(events[1].finish, std::nullopt);
  EXPECT_EQ(events[2].finish, FinishReason::error);
  EXPECT_TRUE(scheduler.idle());
}

TEST(Scheduler, ResultsThatDoNotMatchThePlanEndTheReplica) {
  Scheduler scheduler(limits(), 1);
  EXPECT_FALSE(scheduler.commit({}).ok());
  ASSERT_TRUE(scheduler.admit(request(1, 5, 5)).ok());
  const auto plan = scheduler.plan();
  StepResult result;
  result.step = plan->step;
  EXPECT_FALSE(scheduler.commit(result).ok()) << "a sampled slot is missing";
}

// P + 1 plans in flight of P stages: each holds its share, and nobody is in two neighbouring ones.
TEST(Scheduler, E09_PipelinePlansTakeTurns) {
  constexpr int kStages = 3;
  StepLimits wide = limits(400, kStages + 1);
  wide.max_slots = 12;
  Scheduler scheduler(wide, 1);
  for (uint64_t id = 1; id <= 6; ++id)
    ASSERT_TRUE(scheduler.admit(request(id, 2, 100, int32_t(100 * id))).ok());
  std::deque<StepPlan> plans;
  std::vector<std::set<int32_t>> slots;
  for (int step = 0; step < 40; ++step) {
    while (auto plan = scheduler.plan()) {
      std::set<int32_t> used;
      for (const StepEntry& entry : plan->entries) used.insert(entry.slot);
      slots.push_back(used);
      plans.push_back(*plan);
    }
    ASSERT_TRUE(scheduler.commit(answer(plans.front())).ok());
    plans.pop_front();
  }
  for (size_t i = 12; i + kStages <= slots.size(); ++i) {
    std::set<int32_t> together;
    for (size_t j = i; j < i + kStages; ++j) {
      EXPECT_EQ(slots[j].size(), 2u);
      together.insert(slots[j].begin(), slots[j].end());
    }
    EXPECT_EQ(together.size(), 6u) << "plans " << i << " and the next two";
  }
}

// Runs everything to its end; the steps it took. Fails if nothing moves.
int run_to_end(Scheduler& scheduler, FakeExecutor& fake) {
  int steps = 0;
  for (; !scheduler.idle(); ++steps) {
    while (auto plan = scheduler.plan()) {
      const Status status = fake.submit(*plan);
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    const auto result = fake.next_result();
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    if (!result.ok() || !scheduler.commit(*result).ok()) return -1;
  }
  return steps;
}

// Sequences that cannot end in the pool together: they must not take each other's blocks for ever.
TEST(Scheduler, KvPressureIsNoLivelock) {
  for (const int in_flight : {1, 2, 3, 5}) {
    SCOPED_TRACE(in_flight);
    const StepLimits tight = limits(8, in_flight);
    Scheduler scheduler(tight, 1);
    FakeExecutor fake(tight);
    // Many undisturbed steps make admission bold.
    for (uint64_t id = 1; id <= 6; ++id) {
      ASSERT_TRUE(scheduler.admit(request(id, 2, 110, int32_t(100 * id))).ok());
      ASSERT_GT(run_to_end(scheduler, fake), 0);
    }
    EXPECT_EQ(scheduler.load().preemptions, 0u);
    const int64_t rows = fake.rows();
    for (uint64_t id = 11; id <= 13; ++id)
      ASSERT_TRUE(scheduler.admit(request(id, 2, 110, int32_t(10 * id))).ok());
    const int steps = run_to_end(scheduler, fake);
    EXPECT_GT(scheduler.load().preemptions, 0u);
    EXPECT_GT(steps, 0);
    EXPECT_LT(steps, 600) << "330 tokens, and what is computed twice";
    EXPECT_LT(fake.rows() - rows, 800);
  }
}

// First come, first served: small requests that keep coming do not overtake one that waits.
TEST(Scheduler, E20_ALargeRequestIsNotStarved) {
  Scheduler scheduler(limits(8, 1), 1);
  uint64_t id = 100;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(scheduler.admit(request(id++, 20, 10)).ok());
  ASSERT_TRUE(scheduler.admit(request(1, 100, 5, 500)).ok());
  for (int step = 0; step < 60; ++step) {
    ASSERT_TRUE(scheduler.admit(request(id, 20, 10, int32_t(10 * id))).ok());
    ++id;
    const auto plan = scheduler.plan();
    ASSERT_TRUE(plan);
    ASSERT_TRUE(scheduler.commit(answer(*plan)).ok());
    for (const auto& event : scheduler.take_events())
      if (event.id.request == 1 && event.finish) return;
  }
  ADD_FAILURE() << "the large request did not end within 60 steps";
}

}  // namespace
}  // namespace cohort
