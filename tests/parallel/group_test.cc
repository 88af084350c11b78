// SPDX-License-Identifier: Apache-2.0
// Verbs run where they are called, or on the rank's line; they fail where they are awaited; and the
// line keeps account.
#include "parallel/group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/task.h"
#include "tests/support/faulty_communicator.h"
#include "tests/support/local_ranks.h"
#include "tests/support/slow_communicator.h"

namespace cohort {
namespace {

constexpr int64_t kCount = 8;

std::unique_ptr<Communicator> group_of_all(World& world) {
  std::vector<int> everyone;
  for (int r = 0; r < world.size(); r++) everyone.push_back(r);
  auto made = world.group(everyone, "tp");
  if (!made.ok()) throw Failure(made.status());
  (*made)->set_timeout(std::chrono::seconds(20));
  return std::move(*made);
}

TreePlan one_unit_each(int ranks) {
  std::vector<UnitRange> owned;
  for (int r = 0; r < ranks; r++) owned.push_back({r, r + 1});
  return TreePlan(ranks, owned);
}

// What a lane of a step does: sums whose terms say rank, lane and number.
struct Sums {
  explicit Sums(int rank) : rank(rank) {}
  const int rank;
  std::vector<float> in = std::vector<float>(kCount), out = std::vector<float>(kCount);
  std::vector<float> results;
};

float term(int rank, int lane, int number) { return float(1000 * rank + 100 * lane + number); }

Task one_sum(Group& group, const TreePlan& plan, Sums& sums, int lane, int number) {
  std::fill(sums.in.begin(), sums.in.end(), term(sums.rank, lane, number));
  const Tensor in(sums.in.data(), DType::f32, {1, kCount}),
      out(sums.out.data(), DType::f32, {kCount});
  co_await group.all_reduce(plan, in, out);
  sums.results.push_back(sums.out[kCount - 1]);
}

Task many_sums(Group& group, const TreePlan& plan, Sums& sums, int lane, int n,
               std::vector<int>& order) {
  for (int i = 0; i < n; i++) {
    order.push_back(lane);
    co_await one_sum(group, plan, sums, lane, i);
  }
}

// Resumes the tasks in turn until all are done; how the step runner does it.
void alternate(VerbLine& line, std::vector<Task*> tasks) {
  std::vector<std::coroutine_handle<>> waiting;
  for (Task* task : tasks) {
    task->start();
    waiting.push_back(line.take_suspended());
  }
  while (!std::ranges::all_of(tasks, [](Task* task) { return task->done(); }))
    for (size_t i = 0; i < tasks.size(); i++) {
      if (tasks[i]->done()) continue;
      waiting[i].resume();
      waiting[i] = line.take_suspended();
    }
}

TEST(GroupTest, AnOpenLineSuspendsTheInnermostCoroutineAndGivesTheSameSums) {
  run_local_ranks(2, [](World& world) {
    const auto communicator = group_of_all(world);
    VerbLine line(true);
    Group group(*communicator, GroupKind::tp, &line);
    const TreePlan plan = one_unit_each(2);
    Sums a(world.rank()), b(world.rank());
    std::vector<int> order;
    line.open();
    Task first = many_sums(group, plan, a, 0, 100, order);
    Task second = many_sums(group, plan, b, 1, 100, order);
    alternate(line, {&first, &second});
    line.close();
    first.result();
    second.result();
    ASSERT_EQ(a.results.size(), 100u);
    ASSERT_EQ(b.results.size(), 100u);
    for (int i = 0; i < 100; i++) {
      EXPECT_EQ(a.results[size_t(i)], term(0, 0, i) + term(1, 0, i));
      EXPECT_EQ(b.results[size_t(i)], term(0, 1, i) + term(1, 1, i));
    }
    for (size_t i = 0; i < order.size(); i++) ASSERT_EQ(order[i], int(i % 2)) << "turn " << i;
    EXPECT_EQ(line.times().groups[size_t(GroupKind::tp)].calls, 200);
  });
}

TEST(GroupTest, AClosedLineNeverSuspendsAndCountsAllOfAVerbAsIdle) {
  run_local_ranks(2, [](World& world) {
    const auto communicator = group_of_all(world);
    VerbLine line(true);
    Group group(*communicator, GroupKind::tp, &line);
    const TreePlan plan = one_unit_each(2);
    Sums sums(world.rank());
    std::vector<int> order;
    Task task = many_sums(group, plan, sums, 0, 5, order);
    task.start();
    ASSERT_TRUE(task.done());
    task.result();
    const CommunicationTimes& times = line.times();
    const VerbTotals& tp = times.groups[size_t(GroupKind::tp)];
    EXPECT_EQ(tp.calls, 5);
    EXPECT_EQ(tp.bytes_sent, 5 * kCount * 4);
    EXPECT_GT(tp.seconds, 0);
    EXPECT_NEAR(tp.hidden, 0, 1e-12);
    EXPECT_NEAR(times.idle, tp.seconds, 1e-9);
  });
}

TEST(GroupTest, WhatAVerbOfASlowLinkTakesIsHiddenBehindWhatIsComputedMeanwhile) {
  run_local_ranks(2, [](World& world) {
    SlowCommunicator slow(group_of_all(world), {.call_seconds = 0.02});
    VerbLine line(true);
    Group group(slow, GroupKind::dp, &line);
    std::vector<float> in(size_t(kCount), float(world.rank() + 1)), out(size_t(2 * kCount));
    const std::vector<int64_t> bytes = {kCount * 4, kCount * 4};
    line.open();
    auto gathered = group.all_gather(Tensor(in.data(), DType::f32, {kCount}), out.data(), bytes);
    std::this_thread::sleep_for(std::chrono::milliseconds(60));  // computes
    gathered.await_resume();
    EXPECT_EQ(out[0], 1);
    EXPECT_EQ(out[size_t(kCount)], 2);
    const VerbTotals& dp = line.times().groups[size_t(GroupKind::dp)];
    EXPECT_GE(dp.seconds, 0.02);
    EXPECT_GE(dp.hidden, 0.02);
    EXPECT_LE(dp.hidden, dp.seconds);
    EXPECT_GE(line.times().idle, 0);
  });
}

TEST(GroupTest, MoreVerbsThanTheLineRemembersMayBeHeld) {
  run_local_ranks(2, [](World& world) {
    const auto communicator = group_of_all(world);
    VerbLine line(true);
    Group group(*communicator, GroupKind::pp, &line);
    std::vector<int64_t> values(200, -1);
    for (size_t i = 0; world.rank() == 0 && i < values.size(); i++) values[i] = int64_t(i * i);
    line.open();
    std::vector<Started> held;
    for (int64_t& value : values)
      held.push_back(world.rank() == 0 ? group.send(&value, 8, 1) : group.recv(&value, 8, 0));
    for (const Started& verb : held) verb.await_resume();
    for (size_t i = 0; i < values.size(); i++) ASSERT_EQ(values[i], int64_t(i * i));
  });
}

TEST(GroupTest, AFailedVerbIsToldWhereItIsAwaitedAndEndsAllLaterOnes) {
  run_local_ranks(2, [](World& world) {
    auto inner = group_of_all(world);
    inner->set_timeout(std::chrono::milliseconds(300));
    Faults faults;
    faults.fail_call = 2;
    FaultyCommunicator faulty(std::move(inner), faults);
    VerbLine line(true);
    Group group(faulty, GroupKind::tp, &line);
    const TreePlan plan = one_unit_each(2);
    Sums sums(world.rank());
    std::vector<int> order;
    line.open();
    Task task = many_sums(group, plan, sums, 0, 5, order);
    alternate(line, {&task});
    EXPECT_THROW(task.result(), Failure);
    EXPECT_EQ(sums.results.size(), 2u);
    Sums later(world.rank());
    Task after = many_sums(group, plan, later, 0, 1, order);
    alternate(line, {&after});
    try {
      after.result();
      ADD_FAILURE() << "a verb went on after a failure";
    } catch (const Failure& failure) {
      EXPECT_NE(failure.status().message().find("injected failure"), std::string::npos);
    }
    EXPECT_EQ(faulty.calls(), 3) << "what follows a failure does not reach the communicator";
  });
}

TEST(GroupTest, AbortEndsAVerbThatWaitsOnTheLine) {
  run_local_ranks(2, [](World& world) {
    const auto communicator = group_of_all(world);
    if (world.rank() == 1) return;  // never comes
    VerbLine line(true);
    Group group(*communicator, GroupKind::tp, &line);
    int64_t value = 0;
    line.open();
    const Started received = group.recv(&value, 8, 1);
    std::thread watchdog([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      communicator->abort(cancelled("told to end"));
    });
    EXPECT_THROW(received.await_resume(), Failure);
    watchdog.join();
  });
}

TEST(GroupTest, WhatMovesNothingDoesNotReachTheCommunicatorButSuspendsAllTheSame) {
  run_local_ranks(2, [](World& world) {
    FaultyCommunicator counting(group_of_all(world), {});
    VerbLine line(true);
    Group group(counting, GroupKind::tp, &line);
    const TreePlan plan = one_unit_each(2);
    line.open();
    const std::vector<int64_t> none = {0, 0};
    float nothing = 0;
    const Tensor in(&nothing, DType::f32, {1, 0}), out(&nothing, DType::f32, {0});
    for (const Started& verb :
         {group.all_reduce(plan, in, out), group.all_gather(in, &nothing, none),
          group.send(&nothing, 0, 1 - world.rank()), group.recv(&nothing, 0, 1 - world.rank())}) {
      EXPECT_FALSE(verb.await_ready());
      verb.await_resume();
    }
    EXPECT_EQ(counting.calls(), 0);
  });
}

// Verbs that are dropped, and a line that ends while one waits for its peer.
TEST(GroupTest, ALineEndsWithItsVerbs) {
  run_local_ranks(2, [](World& world) {
    const auto communicator = group_of_all(world);
    communicator->set_timeout(std::chrono::milliseconds(100));
    int64_t values[3] = {};
    VerbLine line(true);
    Group group(*communicator, GroupKind::tp, &line);
    line.open();
    if (world.rank() == 1) return;
    for (int64_t& value : values) (void)group.recv(&value, 8, 1);
  });
}

}  // namespace
}  // namespace cohort
