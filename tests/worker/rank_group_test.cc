// SPDX-License-Identifier: Apache-2.0
// A whole replica in one process: the leader's rank group, control links and rank loops.
#include "worker/rank_group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <tuple>

#include "tests/support/replay.h"
#include "tests/support/spawn_ranks.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/worker/local_replica.h"
#include "tests/worker/requests.h"

namespace cohort::testing {
namespace {

std::vector<StepPlan> some_plans(const StepLimits& limits) {
  return make_schedule(mixed_requests(), limits, {}).plans;
}

// Keeps as many plans in flight as the limits allow.
std::vector<StepResult> drive(RankGroup& group, const std::vector<StepPlan>& plans) {
  std::vector<StepResult> results;
  for (size_t sent = 0; results.size() < plans.size();) {
    if (sent < plans.size() && sent - results.size() < size_t(group.limits().in_flight))
      require_ok(group.submit(plans[sent++]));
    else
      results.push_back(require_ok(group.next_result()));
  }
  return results;
}

// Groups are for models with experts.
ReplicaOptions dp_options(int tp, int pp, int dp) {
  ReplicaOptions options = tiny_options(tp, pp);
  options.model = "tests/data/tiny_models/qwen3_moe";
  options.layout.dp = dp;
  return options;
}

// Of each dp group the plans of its own requests, all in one list. Groups end at different steps.
struct Groups {
  std::vector<StepPlan> plans;
  std::vector<StepResult> expected;  // of one replica per group, none of which knows of the others
};

Groups side_by_side(const StepLimits& limits) {
  Groups all;
  for (int32_t dp = 0; dp < limits.dp; dp++) {
    auto requests = mixed_requests();
    requests.resize(requests.size() - size_t(dp));
    for (TestRequest& request : requests) request.prompt[0] = (request.prompt[0] + dp) % 200;
    const auto plans = make_schedule(requests, limits, {}).plans;
    const ReplicaOptions alone = dp_options(1, 1, 1);
    const auto results = run_plans([&] { return open_tiny(alone); }, alone, plans);
    all.plans.resize(std::max(all.plans.size(), plans.size()));
    all.expected.resize(all.plans.size());
    for (size_t i = 0; i < plans.size(); i++) {
      const int32_t first = dp * limits.max_slots;
      for (int32_t slot : plans[i].frees) all.plans[i].frees.push_back(first + slot);
      for (StepEntry entry : plans[i].entries) {
        entry.slot += first;
        all.plans[i].entries.push_back(std::move(entry));
      }
      for (SlotResult slot : results[i].slots) {
        slot.slot += first;
        all.expected[i].slots.push_back(std::move(slot));
      }
    }
  }
  for (size_t i = 0; i < all.plans.size(); i++) {
    all.plans[i].epoch = 1;
    all.expected[i].step = i + 1;
  }
  chain(all.plans);
  return all;
}

TEST(RankGroupTest, ALoneRankNeedsNoHub) {
  spawn_ranks(1, [](World& world) {
    const auto rank = load_tiny(world, tiny_options());
    RankGroup group(*rank, nullptr, never);
    const auto plans = some_plans(group.limits());
    expect_same(drive(group, plans),
                run_plans([] { return std::make_shared<TinyCheckpoint>(tiny_model(DType::q4_1)); },
                          tiny_options(), plans));
    EXPECT_FALSE(group.has_result());
    EXPECT_FALSE(group.next_result().ok());  // nothing was asked
  });
}

TEST(RankGroupTest, E09_PlansGoToAllRanksAndResultsComeBackInOrder) {
  for (const auto& [tp, pp] : {std::pair(2, 1), std::pair(1, 2), std::pair(2, 2)}) {
    std::vector<StepResult> results;
    std::vector<StepPlan> plans;
    run_replica(
        tiny_options(tp, pp),
        [&](Rank& rank, std::unique_ptr<ControlHub>& hub) {
          RankGroup group(rank, hub.get(), never);
          EXPECT_EQ(group.limits().in_flight, rank.mesh().pp() + 1);
          plans = some_plans(group.limits());
          results = drive(group, plans);
          EXPECT_TRUE(group.failure().ok());
        },
        [](Rank& rank, std::unique_ptr<ControlLink> link) {
          EXPECT_EQ(run_rank_loop(rank, *link, never), kExitDone);
        });
    expect_same(results,
                run_plans([] { return std::make_shared<TinyCheckpoint>(tiny_model(DType::q4_1)); },
                          tiny_options(), plans));
  }
}

TEST(RankGroupTest, E09_ResultsOfAllDpGroupsAreMerged) {
  for (const auto& [tp, pp, dp] : {std::tuple(1, 1, 3), std::tuple(2, 1, 2), std::tuple(1, 2, 2)}) {
    SCOPED_TRACE(concat("tp ", tp, ", pp ", pp, ", dp ", dp));
    StepLimits limits;
    std::vector<StepResult> results;
    Groups groups;
    run_replica(
        dp_options(tp, pp, dp),
        [&](Rank& rank, std::unique_ptr<ControlHub>& hub) {
          RankGroup group(rank, hub.get(), never);
          limits = group.limits();
          groups = side_by_side(limits);
          results = drive(group, groups.plans);
          EXPECT_TRUE(group.failure().ok());
        },
        [](Rank& rank, std::unique_ptr<ControlLink> link) {
          EXPECT_EQ(run_rank_loop(rank, *link, never), kExitDone);
        });
    EXPECT_EQ(limits.dp, dp);
    expect_same(results, groups.expected);
  }
}

TEST(RankGroupTest, E03_ASamplerThatDiesIsNamed) {
  run_replica(
      dp_options(1, 1, 2),
      [&](Rank& rank, std::unique_ptr<ControlHub>& hub) {
        RankGroup group(rank, hub.get(), never);
        Status status = group.submit(some_plans(group.limits())[0]);
        if (status.ok()) status = group.next_result().status();
        ASSERT_FALSE(status.ok());
        EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status.message();
      },
      [](Rank&, std::unique_ptr<ControlLink> link) {
        (void)link->next(kStart);
        link.reset();
      });
}

// It computes, so that no collective is missed, but its result does not come.
TEST(RankGroupTest, E04_ASamplerThatDoesNotAnswerIsNamed) {
  ReplicaOptions options = dp_options(1, 1, 2);
  options.step_timeout = std::chrono::milliseconds(200);
  std::promise<void> noticed;
  run_replica(
      options,
      [&](Rank& rank, std::unique_ptr<ControlHub>& hub) {
        RankGroup group(rank, hub.get(), never);
        require_ok(group.submit(some_plans(group.limits())[0]));
        const auto result = group.next_result();
        noticed.set_value();
        ASSERT_FALSE(result.ok());
        EXPECT_NE(result.status().message().find("s from rank 1"), std::string::npos)
            << result.status().message();
      },
      [&](Rank& rank, const std::unique_ptr<ControlLink>& link) {
        const auto frame = require_ok(link->next(kStart));
        require_ok(rank.execute(require_ok(decode_step_plan(frame.payload))));
        EXPECT_EQ(noticed.get_future().wait_for(kStart), std::future_status::ready);
      });
}

TEST(RankGroupTest, E21_AnAnswerOfTheWrongGroupIsAnError) {
  run_replica(
      dp_options(1, 1, 2),
      [&](Rank& rank, std::unique_ptr<ControlHub>& hub) {
        RankGroup group(rank, hub.get(), never);
        require_ok(group.submit(some_plans(group.limits())[0]));
        const auto result = group.next_result();
        ASSERT_FALSE(result.ok());
        const std::string& message = result.status().message();
        EXPECT_NE(message.find("rank 1"), std::string::npos) << message;
        EXPECT_NE(message.find("slot 0"), std::string::npos) << message;
      },
      [](Rank& rank, std::unique_ptr<ControlLink> link) {
        const auto frame = require_ok(link->next(kStart));
        auto result = *require_ok(rank.execute(require_ok(decode_step_plan(frame.payload))));
        result.slots.resize(1);  // slot 0 is of dp group 0
        require_ok(link->send(FrameType::result, encode(result)));
        (void)link->next(std::chrono::seconds(5));
      });
}

// Sends a load frame from rank 1, of dp group 1; what the leader's next result fails with.
std::string failure_of_load(const std::string& payload, const LoadSink& sink) {
  std::string message;
  run_replica(
      dp_options(1, 1, 2),
      [&](Rank& rank, std::unique_ptr<ControlHub>& hub) {
        RankGroup group(rank, hub.get(), never, sink);
        // It may be noticed before the plan is on its way to all, or only while it runs.
        Status status = group.submit(some_plans(group.limits())[0]);
        if (status.ok()) status = group.next_result().status();
        message = status.message();
      },
      [&](Rank& rank, std::unique_ptr<ControlLink> link) {
        const auto frame = require_ok(link->next(kStart));
        require_ok(link->send(FrameType::load, payload));
        (void)rank.execute(require_ok(decode_step_plan(frame.payload)));
        (void)link->next(std::chrono::seconds(5));
      });
  return message;
}

TEST(RankGroupTest, LoadsThatCannotBeEndTheReplica) {
  const auto any = [](const ExpertLoad&) { return Status(); };
  const auto none = [](const ExpertLoad&) { return invalid_argument("no such expert"); };
  const std::string other = encode(ExpertLoad{0, {{1, {2, 3}}}});
  const std::string own = encode(ExpertLoad{1, {{1, {2, 3}}}});
  const auto expect = [](const std::string& message, const std::string& text) {
    EXPECT_NE(message.find("rank 1"), std::string::npos) << message;
    EXPECT_NE(message.find(text), std::string::npos) << message;
  };
  expect(failure_of_load(other, any), "another rank's tokens");
  expect(failure_of_load(own, none), "no such expert");
  expect(failure_of_load(own.substr(1), any), "does not begin");
}

TEST(RankGroupTest, E03_ARankThatDiesEndsTheReplicaWithItsName) {
  const TimePoint started = std::chrono::steady_clock::now();
  run_replica(
      tiny_options(2),
      [&](Rank& rank, std::unique_ptr<ControlHub>& hub) {
        RankGroup group(rank, hub.get(), never);
        // The loss may be noticed before the plan is on its way, or only while it runs.
        Status status = group.submit(some_plans(group.limits())[0]);
        if (status.ok()) status = group.next_result().status();
        ASSERT_FALSE(status.ok());
        EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status.message();
        EXPECT_FALSE(group.submit(some_plans(group.limits())[1]).ok());
      },
      [](Rank&, std::unique_ptr<ControlLink> link) {
        (void)link->next(kStart);
        link.reset();  // the connection closes, as that of a killed process does
      });
  EXPECT_LT(seconds(std::chrono::steady_clock::now() - started), 8);
}

TEST(RankGroupTest, E04_ARankThatHangsIsNamedWithTheCollective) {
  ReplicaOptions options = tiny_options(2);
  options.step_timeout = std::chrono::milliseconds(200);  // the first step gets six times that
  std::promise<void> noticed;
  run_replica(
      options,
      [&](Rank& rank, std::unique_ptr<ControlHub>& hub) {
        RankGroup group(rank, hub.get(), never);
        require_ok(group.submit(some_plans(group.limits())[0]));
        const auto result = group.next_result();
        ASSERT_FALSE(result.ok());
        const std::string& message = result.status().message();
        EXPECT_NE(message.find("rank 0 on"), std::string::npos) << message;
        noticed.set_value();
        EXPECT_NE(message.find("all-reduce tp"), std::string::npos) << message;
        EXPECT_NE(message.find("rank 1"), std::string::npos) << message;
      },
      [&](Rank&, const std::unique_ptr<ControlLink>&) {
        // Alive, with heartbeats, but it never computes.
        EXPECT_EQ(noticed.get_future().wait_for(kStart), std::future_status::ready);
      });
}

TEST(RankGroupTest, E05_RanksEndWhenTheLeaderIsGone) {
  run_replica(
      tiny_options(2), [](Rank&, std::unique_ptr<ControlHub>& hub) { hub.reset(); },
      [](Rank& rank, std::unique_ptr<ControlLink> link) {
        const TimePoint started = std::chrono::steady_clock::now();
        EXPECT_EQ(run_rank_loop(rank, *link, never), kExitLeaderGone);
        EXPECT_LT(seconds(std::chrono::steady_clock::now() - started), 5);
      });
}

TEST(RankGroupTest, E21_APlanThatDiffersBetweenRanksIsAnError) {
  run_replica(
      tiny_options(2),
      [](Rank& rank, std::unique_ptr<ControlHub>& hub) {
        auto plans = some_plans(rank.limits());
        require_ok(hub->broadcast(FrameType::plan, encode(plans[1])));
        const auto frame = require_ok(hub->next(std::chrono::seconds(5)));
        EXPECT_EQ(frame.type, FrameType::error);
        EXPECT_NE(frame.payload.find("rank 1"), std::string::npos) << frame.payload;
      },
      [](Rank& rank, std::unique_ptr<ControlLink> link) {
        EXPECT_EQ(run_rank_loop(rank, *link, never), kExitRankFailed);
      });
}

}  // namespace
}  // namespace cohort::testing
