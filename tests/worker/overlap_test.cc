// SPDX-License-Identifier: Apache-2.0
// Steps that are cut in two micro-batches give the same bits as whole ones, on every layout; slow
// collectives hide behind what is computed meanwhile; and failures are told as in whole steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>

#include "tests/support/faulty_communicator.h"
#include "tests/support/replay.h"
#include "tests/support/slow_communicator.h"
#include "tests/support/spawn_ranks.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/worker/requests.h"
#include "worker/lanes.h"
#include "worker/rank.h"

namespace cohort::testing {
namespace {

OpenCheckpoint tiny(DType dtype) {
  return [=] { return std::make_shared<TinyCheckpoint>(tiny_model(dtype)); };
}

StepLimits limits_of(const ReplicaOptions& options) {
  StepLimits limits = options.limits;
  limits.blocks = limits.max_slots * ((limits.max_context + kBlockTokens - 1) / kBlockTokens);
  return limits;
}

std::vector<StepPlan> plans_for(const ReplicaOptions& options,
                                const std::vector<TestRequest>& requests, int micro_batches,
                                const ScheduleOptions& schedule = {}) {
  std::vector<StepPlan> plans = make_schedule(requests, limits_of(options), schedule).plans;
  for (StepPlan& plan : plans) plan.micro_batches = micro_batches;
  chain(plans);
  return plans;
}

void expect_same_slots(const std::vector<StepResult>& got,
                       const std::vector<StepResult>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); i++) {
    EXPECT_EQ(got[i].step, expected[i].step);
    EXPECT_EQ(got[i].slots, expected[i].slots) << "step " << got[i].step;
  }
}

TEST(LanesTest, RowsAreHalvedTheFirstLaneTakingTheOddOne) {
  for (int64_t rows : {0, 1, 2, 7, 48}) {
    const RowRange a = lane_rows(rows, 2, 0), b = lane_rows(rows, 2, 1);
    EXPECT_EQ(a.begin, 0);
    EXPECT_EQ(a.end, b.begin);
    EXPECT_EQ(b.end, rows);
    EXPECT_EQ(a.size() - b.size(), rows % 2);
    EXPECT_EQ(lane_rows(rows, 1, 0).size(), rows);
  }
}

StepEntry entry_of(int32_t slot, int32_t start, int32_t length, bool sample) {
  StepEntry entry;
  entry.slot = slot;
  entry.start = start;
  entry.length = length;
  entry.sample = sample;
  return entry;
}

TEST(LanesTest, AnEntryMayBeCutAndSamplesInItsLastPart) {
  StepPlan plan;
  plan.entries = {entry_of(4, 10, 3, true), entry_of(2, 0, 6, true), entry_of(0, 5, 1, true)};
  std::vector<LaneEntry> a, b;
  cut_entries(plan, lane_rows(10, 2, 0), a);
  cut_entries(plan, lane_rows(10, 2, 1), b);
  ASSERT_EQ(a.size(), 2u);
  ASSERT_EQ(b.size(), 2u);
  EXPECT_EQ(a[0].entry, &plan.entries[0]);
  EXPECT_EQ(a[0].length, 3);
  EXPECT_TRUE(a[0].sample);
  EXPECT_EQ(a[1].entry, &plan.entries[1]);
  EXPECT_EQ(a[1].start, 0);
  EXPECT_EQ(a[1].length, 2);
  EXPECT_FALSE(a[1].sample);
  EXPECT_EQ(b[0].entry, &plan.entries[1]);
  EXPECT_EQ(b[0].start, 2);
  EXPECT_EQ(b[0].length, 4);
  EXPECT_TRUE(b[0].sample);
  EXPECT_EQ(b[1].start, 5);
  EXPECT_TRUE(b[1].sample);
}

// Slot results of two lanes: an entry that is cut fails with the first error of either part.
TEST(LanesTest, AReportJoinsTheLanes) {
  StepPlan plan;
  plan.entries = {entry_of(0, 0, 1, true), entry_of(1, 0, 4, true), entry_of(2, 3, 1, false),
                  entry_of(3, 3, 2, true)};
  std::vector<LaneEntry> a, b;
  cut_entries(plan, {0, 3}, a);
  cut_entries(plan, {3, 8}, b);
  std::vector<int32_t> a_errors(3, row_error::kNone), b_errors(5, row_error::kNone);
  a_errors[2] = row_error::attention(7);     // in the first part of slot 1
  b_errors[0] = row_error::feed_forward(9);  // in its second: later, so not told
  b_errors[2] = row_error::feed_forward(1);  // slot 2, which does not sample
  std::vector<SampledToken> a_sampled(1), b_sampled(2);
  a_sampled[0].token = 10;
  b_sampled[0].token = 11;
  b_sampled[1].token = 13;
  const std::vector<LaneOutcome> lanes = {{a, a_errors, a_sampled}, {b, b_errors, b_sampled}};
  std::vector<SlotResult> slots;
  report(lanes, slots);
  ASSERT_EQ(slots.size(), 4u);
  EXPECT_EQ(slots[0].sampled.token, 10);
  EXPECT_EQ(slots[0].error, "");
  EXPECT_EQ(slots[1].slot, 1);
  EXPECT_EQ(slots[1].sampled.token, 11);
  EXPECT_EQ(slots[1].error, row_error::text(row_error::attention(7)));
  EXPECT_EQ(slots[2].slot, 2);
  EXPECT_EQ(slots[2].error, row_error::text(row_error::feed_forward(1)));
  EXPECT_EQ(slots[3].sampled.token, 13);
  EXPECT_EQ(slots[3].error, "");
}

// Greedy and drawn, of one row and of more than a step takes, a few tokens each.
std::vector<TestRequest> few_requests() {
  std::vector<TestRequest> requests = mixed_requests();
  for (TestRequest& request : requests) {
    request.outputs = std::min(request.outputs, 3);
    request.arrival /= 2;
  }
  return requests;
}

struct Case {
  int tp, pp;
  int chunk = 1 << 20;
};

class OverlapTest : public ::testing::TestWithParam<Case> {};

// Prefill, decode and both at once; prompts whose rows are in both halves.
TEST_P(OverlapTest, MicroBatchesChangeNoBit) {
  const auto requests = few_requests();
  const ReplicaOptions whole = tiny_options(), cut = tiny_options(GetParam().tp, GetParam().pp);
  const ScheduleOptions schedule{.chunk = GetParam().chunk};
  const auto expected =
      run_plans(tiny(DType::q4_1), whole, plans_for(whole, requests, 1, schedule));
  expect_same_slots(run_plans(tiny(DType::q4_1), cut, plans_for(cut, requests, 2, schedule)),
                    expected);
}

INSTANTIATE_TEST_SUITE_P(Layouts, OverlapTest,
                         ::testing::Values(Case{2, 1}, Case{2, 1, 7}, Case{1, 2}, Case{2, 2},
                                           Case{3, 1}),
                         [](const auto& info) {
                           const Case& c = info.param;
                           return concat("tp", c.tp, "pp", c.pp, c.chunk < 100 ? "chunks" : "");
                         });

// Some steps are cut, others are not: the cache and the tokens of one serve the other.
TEST(OverlapPlansTest, WholeAndCutStepsMayFollowEachOther) {
  const ReplicaOptions whole = tiny_options(), cut = tiny_options(2, 2);
  const auto expected = run_plans(tiny(DType::f32), whole, plans_for(whole, few_requests(), 1));
  std::vector<StepPlan> plans = plans_for(cut, few_requests(), 1);
  for (size_t i = 0; i < plans.size(); i++) plans[i].micro_batches = i % 3 == 0 ? 1 : 2;
  chain(plans);
  expect_same_slots(run_plans(tiny(DType::f32), cut, plans), expected);
}

// Replicas that were told not to overlap obey the same plans, in one pass.
TEST(OverlapPlansTest, WithoutLanesPlansAreRunWhole) {
  ReplicaOptions options = tiny_options(2);
  const auto expected =
      run_plans(tiny(DType::q8_0), tiny_options(), plans_for(options, few_requests(), 1));
  options.overlap = Overlap::off;
  expect_same_slots(run_plans(tiny(DType::q8_0), options, plans_for(options, few_requests(), 2)),
                    expected);
}

// What run_plans does, over communicators that a test makes.
void run_over(const ReplicaOptions& options, const WrappedWorld::Wrap& wrap,
              const std::function<void(Rank&)>& body) {
  spawn_ranks(options.layout.ranks(), [&](World& world) {
    WrappedWorld wrapped(world, wrap);
    TinyCheckpoint checkpoint(tiny_model(DType::q4_1));
    const auto rank = require_ok(Rank::load(wrapped, checkpoint, options, {}));
    body(*rank);
  });
}

// The link is so slow that a step is communication above all, and what is computed hides some of
// it; the times of the whole and of the cut steps say so.
TEST(OverlapTimesTest, ComputingHidesASlowLink) {
  ReplicaOptions options = tiny_options(2);
  const std::vector<TestRequest> requests = {{some_tokens(48, 3), 1, greedy(), 0},
                                             {some_tokens(48, 5), 1, greedy(), 0}};
  for (const int micro_batches : {1, 2}) {
    SCOPED_TRACE(concat(micro_batches, " micro-batches"));
    run_over(
        options,
        [](std::unique_ptr<Communicator> made, const std::string& label) {
          const double slow = label == "tp" ? 0.002 : 0;
          return std::make_unique<SlowCommunicator>(std::move(made), SlowLink{slow, 0});
        },
        [&](Rank& rank) {
          for (const StepPlan& plan : plans_for(options, requests, micro_batches))
            require_ok(rank.execute(plan).status());
          const StepTimes total = rank.times().total();
          const VerbTotals& tp = total.groups[size_t(GroupKind::tp)];
          EXPECT_EQ(total.steps, 2);
          EXPECT_EQ(total.rows, 96);
          EXPECT_EQ(total.micro_batches, 2 * micro_batches);
          EXPECT_GE(tp.seconds, 0.002 * double(tp.calls));
          EXPECT_GT(total.bytes_sent, 0);
          EXPECT_GT(total.compute, 0);
          EXPECT_LE(total.hidden, total.communication);
          EXPECT_LE(total.hidden, total.compute + 1e-3) << "it hides behind what is computed";
          if (micro_batches == 1)
            EXPECT_NEAR(total.hidden, 0, 1e-9);
          else
            EXPECT_GT(total.hidden, 0.1 * std::min(total.compute, total.communication));
        });
  }
}

TEST(OverlapFailureTest, AFailedCollectiveEndsTheStepAndIsNamed) {
  ReplicaOptions options = tiny_options(2);
  std::atomic<int> failed{0};
  run_over(
      options,
      [](std::unique_ptr<Communicator> made,
         const std::string& label) -> std::unique_ptr<Communicator> {
        if (label != "tp") return made;
        Faults faults;
        // Two lanes take the embedding, then attention and feed-forward of each layer.
        faults.fail_call = 2 * 3 + 1;
        return std::make_unique<FaultyCommunicator>(std::move(made), faults);
      },
      [&](Rank& rank) {
        rank.set_patience(std::chrono::seconds(20));
        const auto plans = plans_for(options, {{some_tokens(20, 1), 2, greedy(), 0}}, 2);
        const auto result = rank.execute(plans[0]);
        ASSERT_FALSE(result.ok());
        const std::string& text = result.status().message();
        EXPECT_NE(text.find("injected failure"), std::string::npos) << text;
        EXPECT_NE(text.find("all-reduce tp, layer 1"), std::string::npos) << text;
        failed++;
      });
  EXPECT_EQ(failed, 2);
}

// As the watchdog does it: the step thread waits for its line, whose thread waits for a peer.
TEST(OverlapFailureTest, AbortEndsAStepThatWaitsForItsPeer) {
  ReplicaOptions options = tiny_options(2);
  run_over(
      options, [](std::unique_ptr<Communicator> made, const std::string&) { return made; },
      [&](Rank& rank) {
        if (rank.rank() == 1) return;  // never comes
        rank.set_patience(std::chrono::seconds(60));
        std::thread watchdog([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          rank.abort(cancelled("the watchdog bites"));
        });
        const auto plans = plans_for(options, {{some_tokens(20, 1), 2, greedy(), 0}}, 2);
        const auto result = rank.execute(plans[0]);
        watchdog.join();
        ASSERT_FALSE(result.ok());
        EXPECT_NE(result.status().message().find("embedding"), std::string::npos)
            << result.status().message();
      });
}

}  // namespace
}  // namespace cohort::testing
