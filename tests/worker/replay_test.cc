// SPDX-License-Identifier: Apache-2.0
// The whole of a replica but its session: the batch loop plans, ranks compute. What it did is
// recorded and done again.
#include <unistd.h>

#include <filesystem>

#include "tests/worker/leader/event_collector.h"
#include "tests/worker/local_replica.h"
#include "tests/worker/requests.h"
#include "worker/leader/batch_loop.h"
#include "worker/plan_record.h"
#include "worker/rank_group.h"

namespace cohort::testing {
namespace {

constexpr Duration kAnswer = std::chrono::seconds(60);

OpenCheckpoint opens(const ReplicaOptions& options) {
  return [=] { return open_tiny(options); };
}

// With a prompt that the cache can hold all of.
std::vector<TestRequest> requests() {
  auto all = mixed_requests();
  all.push_back({some_tokens(48, 8), 6, greedy(), 0});
  return all;
}

using Outputs = std::vector<std::vector<int32_t>>;

// Does something on rank 0 of a replica whose other ranks do as they are told.
void lead(const ReplicaOptions& options, const std::function<void(RankGroup&)>& leader) {
  run_replica(
      options,
      [&](Rank& rank, std::unique_ptr<ControlHub>& hub) {
        RankGroup group(rank, hub.get(), never);
        leader(group);
      },
      [](Rank& rank, std::unique_ptr<ControlLink> link) {
        EXPECT_EQ(run_rank_loop(rank, *link, never), kExitDone);
      });
}

// All requests, and when they have ended all of them again: now their prompts are cached.
void serve_twice(BatchLoop& loop, EventCollector& events) {
  const auto all = requests();
  for (uint32_t round = 1; round <= 2; round++) {
    for (size_t i = 0; i < all.size(); i++)
      require_ok(loop.submit({.id = {i, round},
                              .prompt = all[i].prompt,
                              .output_prefix = {},
                              .sampling = all[i].sampling,
                              .max_tokens = all[i].outputs,
                              .salt = ""}));
    ASSERT_TRUE(events.wait_for_ends(round * all.size(), kAnswer));
  }
}

class ReplayTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  Outputs record(const ReplicaOptions& options) {
    EventCollector events;
    lead(options, [&](RankGroup& group) {
      BatchLoopOptions loop_options;
      loop_options.recorder = require_ok(PlanRecorder::create(path_, group.limits()));
      BatchLoop loop(group, events, std::move(loop_options));
      loop.start();
      serve_twice(loop, events);
      loop.stop();
      require_ok(loop.wait());
    });
    Outputs outputs;
    for (uint32_t round = 1; round <= 2; round++)
      for (size_t i = 0; i < requests().size(); i++) {
        const SequenceId id{i, round};
        EXPECT_EQ(events.end(id).finish, FinishReason::length) << events.end(id).error;
        const auto prompt = int32_t(requests()[i].prompt.size());
        // A prompt is cached where it was computed; with dp groups it may come to another one.
        const int32_t most = round == 1 ? 0 : (prompt - 1) / 16 * 16;
        const int32_t least = options.layout.dp == 1 ? most : 0;
        EXPECT_GE(events.end(id).cached_tokens, least);
        EXPECT_LE(events.end(id).cached_tokens, most);
        outputs.push_back(events.outputs().at(id));
      }
    return outputs;
  }

  // The oracle has no leader and no cache: each request alone, on one rank.
  void expect_same_as_alone(const Outputs& outputs, const ReplicaOptions& one_rank) {
    const auto all = requests();
    for (size_t i = 0; i < all.size(); i++) {
      std::vector<int32_t> alone;
      const auto generated = generate(opens(one_rank), one_rank, {all[i]});
      for (const SampledToken& sampled : generated[0].tokens) alone.push_back(sampled.token);
      EXPECT_EQ(outputs[i], alone) << "request " << i;
      EXPECT_EQ(outputs[i + all.size()], alone) << "request " << i << " of the second round";
    }
  }
  PlanRecord read_record() {
    PlanRecord recorded = require_ok(read_plan_record(path_));
    EXPECT_FALSE(recorded.plans.empty());
    EXPECT_EQ(recorded.plans.size(), recorded.results.size());
    return recorded;
  }

  const std::string path_ = ::testing::TempDir() +
                            concat("cohort_replay_", getpid(), "_",
                                   ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(ReplayTest, E08_E12_RecordedPlansGiveTheSameResultsOnAnyLayout) {
  expect_same_as_alone(record(tiny_options(2)), tiny_options());
  const PlanRecord recorded = read_record();
  lead(tiny_options(2), [&](RankGroup& group) {
    expect_same(require_ok(replay(recorded.plans, group)), recorded.results);
  });
  const ReplicaOptions stages = tiny_options(1, 3);
  expect_same(run_plans(opens(stages), stages, recorded.plans), recorded.results);
}

TEST_F(ReplayTest, E08_E12_DpGroupsServeAsOneReplicaAndAreReplayed) {
  ReplicaOptions options = tiny_options();
  options.model = "tests/data/tiny_models/qwen3_moe";
  const ReplicaOptions one_rank = options;
  options.layout.dp = 2;
  expect_same_as_alone(record(options), one_rank);
  const PlanRecord recorded = read_record();
  EXPECT_EQ(recorded.limits.dp, 2);
  int64_t common = 0;  // steps in which both groups computed
  for (const StepPlan& plan : recorded.plans) {
    const auto rows = rows_of(plan, recorded.limits);
    common += rows[0] > 0 && rows[1] > 0;
  }
  EXPECT_GT(common, 5);
  options.layout.tp = 2;  // other ranks, the same groups
  lead(options, [&](RankGroup& group) {
    expect_same(require_ok(replay(recorded.plans, group)), recorded.results);
  });
}

}  // namespace
}  // namespace cohort::testing
