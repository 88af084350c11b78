// SPDX-License-Identifier: Apache-2.0
// Random arrivals, lengths, cancels and end tokens against a simulated replica that checks every
// rule of plans (fake_executor.h), with every number of plans in flight and pools so small that
// preemption never stops.
#include <gtest/gtest.h>

#include <random>
#include <tuple>

#include "fake_executor.h"
#include "kernels/kv_layout.h"
#include "worker/leader/scheduler.h"

namespace cohort {
namespace {

struct World {
  uint32_t seed;
  StepLimits limits;
  int requests;
  int longest_prompt, longest_output;
  double cancel_rate;  // of steps
};

class Simulation {
 public:
  explicit Simulation(const World& world)
      : world_(world), random_(world.seed), scheduler_(world.limits, 5), fake_(world.limits) {
    for (int p = 0; p < 3; ++p) shared_prefixes_.push_back(random_tokens(64));
  }

  void run() {
    int ticks = 0;
    while (submitted_ < world_.requests || !scheduler_.idle()) {
      ASSERT_LT(++ticks, 400 * world_.requests) << "no end in sight";
      if (submitted_ < world_.requests && chance(0.4)) submit();
      if (chance(world_.cancel_rate)) cancel_one();
      ASSERT_NO_FATAL_FAILURE(step());
    }
    const BlockCounts blocks = scheduler_.load().blocks;
    EXPECT_EQ(blocks.held, 0);
    EXPECT_EQ(blocks.free + blocks.parked, blocks.total);
    for (const auto& [id, request] : requests_) check_output(id, request);
  }

  const FakeExecutor& fake() const { return fake_; }
  const Scheduler& scheduler() const { return scheduler_; }
  int64_t cached_tokens() const { return cached_tokens_; }

 private:
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }
  int below(int n) { return std::uniform_int_distribution<>(0, n - 1)(random_); }
  std::vector<int32_t> random_tokens(int n) {
    std::vector<int32_t> tokens;
    for (int i = 0; i < n; ++i) tokens.push_back(10 + below(900));
    return tokens;
  }

  void submit() {
    SequenceRequest request;
    request.id = {uint64_t(++submitted_), 1};
    if (chance(0.5)) {
      const auto& prefix = shared_prefixes_[size_t(below(3))];
      request.prompt.assign(prefix.begin(),
                            prefix.begin() + std::min(64, below(world_.longest_prompt)));
    }
    const auto rest = random_tokens(1 + below(world_.longest_prompt));
    request.prompt.insert(request.prompt.end(), rest.begin(), rest.end());
    request.prompt.resize(std::min(request.prompt.size(), size_t(world_.longest_prompt)));
    if (chance(0.05)) request.prompt[0] = kFakePoison;
    request.max_tokens = 1 + below(world_.longest_output);
    if (chance(0.7)) request.sampling.end_tokens = {kFakeEnd};
    request.sampling.min_tokens = below(5);
    if (chance(0.3)) request.salt = "tenant";
    if (chance(0.2)) {  // a failover: what the first attempts produced comes along
      std::vector<int32_t> tokens = request.prompt;
      for (int i = below(request.max_tokens); i > 0 && !is_over(request); --i) {
        tokens.push_back(fake_next_token(tokens, int32_t(request.prompt.size()), request.sampling));
        request.output_prefix.push_back(tokens.back());
      }
    }
    requests_[request.id] = request;
    const Status status = scheduler_.admit(request);
    ASSERT_TRUE(status.ok()) << status.to_string();
    take_events();
  }

  static bool is_over(const SequenceRequest& request) {
    return !request.output_prefix.empty() && request.output_prefix.back() == kFakeEnd;
  }

  void cancel_one() {
    if (requests_.empty()) return;
    auto chosen = requests_.begin();
    std::advance(chosen, below(int(requests_.size())));
    if (scheduler_.cancel(chosen->first)) {
      EXPECT_FALSE(finished_.contains(chosen->first)) << "cancelled after its end";
      cancelled_.insert(chosen->first);
    }
  }

  void step() {
    check_scheduler();
    const int32_t budget = chance(0.2) ? 1 + below(world_.limits.max_rows) : world_.limits.max_rows;
    bool planned = false;
    if (auto plan = scheduler_.plan(budget)) {
      const Status status = fake_.submit(*plan);
      ASSERT_TRUE(status.ok()) << status.to_string();
      planned = true;
    }
    check_scheduler();
    const bool must_wait = !planned && fake_.unanswered() > 0;
    if (!planned && !must_wait) {
      const SchedulerLoad load = scheduler_.load();
      ASSERT_EQ(load.running + load.waiting, 0) << "work is left, but nothing is done";
    }
    if (!must_wait && !(fake_.unanswered() > 0 && chance(0.5))) return;
    const auto result = fake_.next_result();
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    const Status status = scheduler_.commit(*result);
    ASSERT_TRUE(status.ok()) << status.to_string();
    take_events();
    check_scheduler();
  }

  void check_scheduler() {
    const Status status = scheduler_.check_integrity();
    ASSERT_TRUE(status.ok()) << status.to_string();
  }

  void take_events() {
    for (const SequenceEvent& event : scheduler_.take_events()) {
      EXPECT_FALSE(cancelled_.contains(event.id)) << "an event after the cancel";
      EXPECT_FALSE(finished_.contains(event.id)) << "an event after the end";
      auto& output = outputs_[event.id];
      const size_t prefix = requests_[event.id].output_prefix.size();
      EXPECT_EQ(size_t(event.index), prefix + output.size());
      if (event.token) output.push_back(event.token->token);
      if (event.finish) finished_[event.id] = *event.finish;
      if (event.token && prefix + output.size() == 1) cached_tokens_ += event.cached_tokens;
    }
  }

  // The oracle: one sequence alone, without steps.
  void check_output(SequenceId id, const SequenceRequest& request) {
    std::vector<int32_t> tokens = request.prompt, expected;
    tokens.insert(tokens.end(), request.output_prefix.begin(), request.output_prefix.end());
    const auto prompt = int32_t(request.prompt.size());
    const int32_t most = std::min(request.max_tokens, world_.limits.max_context + 1 - prompt);
    auto reason = FinishReason::length;
    if (is_over(request)) reason = FinishReason::stop;
    while (reason == FinishReason::length && int32_t(tokens.size()) - prompt < most) {
      const int32_t token = fake_next_token(tokens, prompt, request.sampling);
      tokens.push_back(token);
      if (tokens[0] == kFakePoison && int32_t(tokens.size()) >= prompt + 3) {
        reason = FinishReason::error;
      } else {
        expected.push_back(token);
        if (token == kFakeEnd) reason = FinishReason::stop;
      }
    }
    const auto& output = outputs_[id];
    if (cancelled_.contains(id)) {
      ASSERT_LE(output.size(), expected.size());
      expected.resize(output.size());
    } else {
      ASSERT_TRUE(finished_.contains(id)) << "request " << id.request << " never ended";
      EXPECT_EQ(finished_[id], reason) << "request " << id.request;
    }
    EXPECT_EQ(output, expected) << "request " << id.request;
  }

  const World world_;
  std::mt19937 random_;
  Scheduler scheduler_;
  FakeExecutor fake_;
  std::vector<std::vector<int32_t>> shared_prefixes_;
  int submitted_ = 0;
  int64_t cached_tokens_ = 0;
  std::map<SequenceId, SequenceRequest> requests_;
  std::map<SequenceId, std::vector<int32_t>> outputs_;
  std::map<SequenceId, FinishReason> finished_;
  std::set<SequenceId> cancelled_;
};

StepLimits limits(int in_flight, int blocks, int slots = 8, int rows = 48) {
  return {.max_slots = slots,
          .max_rows = rows,
          .max_context = 160,
          .blocks = blocks,
          .in_flight = in_flight};
}

class SchedulerProperty : public testing::TestWithParam<int> {};

TEST_P(SchedulerProperty, E15_EveryRequestGetsItsTokensAndNoBlockIsLost) {
  for (uint32_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    Simulation simulation({seed, limits(GetParam(), 120), 120, 80, 60, 0.05});
    simulation.run();
    if (HasFatalFailure()) return;
    EXPECT_GT(simulation.cached_tokens(), 0);
  }
}

TEST_P(SchedulerProperty, E15_TinyPoolsPreemptAndStillEnd) {
  uint64_t preemptions = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    // One sequence of the longest kind needs 9 blocks: two never fit.
    Simulation simulation({seed, limits(GetParam(), 10), 60, 40, 100, 0.03});
    simulation.run();
    if (HasFatalFailure()) return;
    preemptions += simulation.scheduler().load().preemptions;
  }
  EXPECT_GT(preemptions, 20u);
}

TEST_P(SchedulerProperty, E15_TwoThousandRequestsWithCancels) {
  Simulation simulation({77, limits(GetParam(), 60, 16, 64), 2000, 60, 30, 0.3});
  simulation.run();
}

TEST_P(SchedulerProperty, MoreSlotsThanRows) {
  Simulation simulation({3, limits(GetParam(), 200, 32, 4), 60, 10, 60, 0});
  simulation.run();
}

// The same with dp groups, each with a pool, slots and rows of its own.
using GroupsAndInFlight = std::tuple<int, int>;
class SchedulerGroupsProperty : public testing::TestWithParam<GroupsAndInFlight> {
 protected:
  static StepLimits group_limits(int blocks, int slots = 8, int rows = 48) {
    StepLimits result = limits(std::get<1>(GetParam()), blocks, slots, rows);
    result.dp = std::get<0>(GetParam());
    return result;
  }
  static void expect_all_groups_worked(const Simulation& simulation, const StepLimits& limits) {
    std::vector<int64_t> rows(size_t(limits.dp));
    for (const StepPlan& plan : simulation.fake().plans())
      for (size_t dp = 0; dp < rows.size(); ++dp) rows[dp] += rows_of(plan, limits)[dp];
    for (const int64_t n : rows) EXPECT_GT(n, 0);
  }
};

TEST_P(SchedulerGroupsProperty, E15_EveryRequestGetsItsTokensAndNoBlockIsLost) {
  for (uint32_t seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE(seed);
    const World world{seed, group_limits(60, 4), 150, 80, 60, 0.05};
    Simulation simulation(world);
    simulation.run();
    if (HasFatalFailure()) return;
    EXPECT_GT(simulation.cached_tokens(), 0);
    expect_all_groups_worked(simulation, world.limits);
  }
}

TEST_P(SchedulerGroupsProperty, E15_TinyPoolsPreemptAndStillEnd) {
  uint64_t preemptions = 0;
  for (uint32_t seed = 0; seed < 15; ++seed) {
    SCOPED_TRACE(seed);
    const World world{seed, group_limits(10), 80, 40, 100, 0.03};
    Simulation simulation(world);
    simulation.run();
    if (HasFatalFailure()) return;
    preemptions += simulation.scheduler().load().preemptions;
    expect_all_groups_worked(simulation, world.limits);
  }
  EXPECT_GT(preemptions, 20u);
}

TEST_P(SchedulerGroupsProperty, FewRowsFewSlots) {
  const World world{3, group_limits(40, 2, 3), 60, 10, 60, 0.1};
  Simulation simulation(world);
  simulation.run();
  expect_all_groups_worked(simulation, world.limits);
}

INSTANTIATE_TEST_SUITE_P(Groups, SchedulerGroupsProperty,
                         testing::Combine(testing::Values(2, 3, 4), testing::Values(1, 2, 3)));
INSTANTIATE_TEST_SUITE_P(InFlight, SchedulerProperty, testing::Values(1, 2, 3, 4, 5));

class SchedulerReplay : public testing::TestWithParam<int> {};

TEST_P(SchedulerReplay, TheSameCallsGiveTheSamePlansAndReplayedPlansTheSameState) {
  World world{21, limits(3, 40), 60, 60, 60, 0.05};
  world.limits.dp = GetParam();
  Simulation first(world), second(world);
  first.run();
  second.run();
  ASSERT_FALSE(testing::Test::HasFatalFailure());
  EXPECT_EQ(first.fake().plans(), second.fake().plans());
  FakeExecutor replayed(world.limits);
  for (const StepPlan& plan : first.fake().plans()) {
    ASSERT_TRUE(replayed.submit(plan).ok());
    ASSERT_TRUE(replayed.next_result().ok());
  }
  EXPECT_EQ(replayed.state(), first.fake().state());
}

INSTANTIATE_TEST_SUITE_P(Groups, SchedulerReplay, testing::Values(1, 3));

}  // namespace
}  // namespace cohort
