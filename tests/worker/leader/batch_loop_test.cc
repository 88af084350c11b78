// SPDX-License-Identifier: Apache-2.0
#include "worker/leader/batch_loop.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <set>

#include "event_collector.h"
#include "fake_executor.h"

namespace cohort {
namespace {

using namespace std::chrono_literals;

constexpr StepLimits kLimits{
    .max_slots = 4, .max_rows = 32, .max_context = 128, .blocks = 40, .in_flight = 2};

SequenceRequest request(uint64_t id, int prompt, int max_tokens) {
  SequenceRequest r;
  r.id = {id, 1};
  for (int i = 0; i < prompt; ++i) r.prompt.push_back(int32_t(100 * id) % 800 + i);
  r.max_tokens = max_tokens;
  return r;
}

TEST(BatchLoop, RunsRequestsOfManyThreadsToTheirEnds) {
  FakeExecutor fake(kLimits);
  EventCollector events;
  BatchLoop loop(fake, events, {});
  loop.start();
  std::vector<std::thread> clients;
  for (uint64_t client = 0; client < 4; ++client)
    clients.emplace_back([&, client] {
      for (uint64_t i = 1; i <= 25; ++i)
        EXPECT_TRUE(loop.submit(request(100 * client + i, int(i), 8)).ok());
    });
  for (auto& client : clients) client.join();
  ASSERT_TRUE(events.wait_for_ends(100, 20s));
  loop.stop();
  EXPECT_TRUE(loop.wait().ok());
  for (const auto& [id, output] : events.outputs()) {
    std::vector<int32_t> tokens = request(id.request, int(id.request % 100), 8).prompt;
    const auto prompt = int32_t(tokens.size());
    for (int i = 0; i < 8; ++i) tokens.push_back(fake_next_token(tokens, prompt, {}));
    EXPECT_EQ(output, std::vector<int32_t>(tokens.begin() + prompt, tokens.end()));
  }
  const LoadReport load = loop.load();
  EXPECT_EQ(load.submits, 100u);
  EXPECT_EQ(load.scheduler.running + load.scheduler.waiting, 0);
}

TEST(BatchLoop, PlansAreCutAndCopyExpertsAsTheOptionsSay) {
  StepLimits limits = kLimits;
  limits.dp = 2;
  FakeExecutor fake(limits);  // it checks the checksum
  EventCollector events;
  std::atomic<bool> told = false;
  const std::vector<ExpertCopy> copies = {{.layer = 3, .expert = 8, .dp = 1, .add = true}};
  BatchLoopOptions options;
  options.split = [](const StepPlan& plan) { return plan.rows() > 8 ? 2 : 1; };
  options.copies = [&] { return told.exchange(true) ? std::vector<ExpertCopy>() : copies; };
  BatchLoop loop(fake, events, std::move(options));
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(loop.submit(request(id, 20, 8)).ok());
  loop.start();
  ASSERT_TRUE(events.wait_for_ends(4, 20s));
  loop.stop();
  EXPECT_TRUE(loop.wait().ok());
  std::set<int32_t> cuts;
  for (const StepPlan& plan : fake.plans()) {
    EXPECT_EQ(plan.micro_batches, plan.rows() > 8 ? 2 : 1);
    EXPECT_EQ(plan.copies, plan.step == 1 ? copies : std::vector<ExpertCopy>());
    cuts.insert(plan.micro_batches);
  }
  EXPECT_EQ(cuts, (std::set<int32_t>{1, 2}));
}

TEST(BatchLoop, RefusalsAndCancelsAreEvents) {
  FakeExecutor fake(kLimits);
  EventCollector events;
  BatchLoop loop(fake, events, {});
  ASSERT_TRUE(loop.submit(request(1, 500, 5)).ok());
  ASSERT_TRUE(loop.submit(request(2, 5, 5)).ok());
  ASSERT_TRUE(loop.cancel({2, 1}).ok());
  loop.start();
  ASSERT_TRUE(events.wait_for_ends(2, 5s));
  EXPECT_EQ(events.end({1, 1}).finish, FinishReason::error);
  EXPECT_EQ(events.end({1, 1}).refused, Code::kInvalidArgument);
  EXPECT_EQ(events.end({2, 1}).finish, FinishReason::cancelled);
}

TEST(BatchLoop, TheInboxIsBounded) {
  FakeExecutor fake(kLimits);
  EventCollector events;
  BatchLoopOptions options;
  options.inbox_capacity = 2;
  BatchLoop loop(fake, events, std::move(options));
  EXPECT_TRUE(loop.submit(request(1, 5, 5)).ok());
  EXPECT_TRUE(loop.submit(request(2, 5, 5)).ok());
  EXPECT_EQ(loop.submit(request(3, 5, 5)).code(), Code::kResourceExhausted);
  EXPECT_TRUE(loop.cancel({1, 1}).ok()) << "a cancel always has room";
  loop.stop();
  EXPECT_EQ(loop.submit(request(4, 5, 5)).code(), Code::kUnavailable);
}

class BrokenExecutor : public FakeExecutor {
 public:
  using FakeExecutor::FakeExecutor;
  Result<StepResult> next_result() override { return unavailable("rank 3 of 8 on host b is gone"); }
};

TEST(BatchLoop, E05_AFatalErrorOfTheRanksEndsTheLoop) {
  BrokenExecutor broken(kLimits);
  EventCollector events;
  BatchLoop loop(broken, events, {});
  loop.start();
  ASSERT_TRUE(loop.submit(request(1, 5, 5)).ok());
  const Status end = loop.wait();
  EXPECT_EQ(end.message(), "rank 3 of 8 on host b is gone");
  EXPECT_FALSE(loop.submit(request(2, 5, 5)).ok());
}

TEST(BatchLoop, E03_ALostRankIsNoticedWhileIdle) {
  FakeExecutor fake(kLimits);
  EventCollector events;
  BatchLoopOptions options;
  std::atomic<bool> healthy = true;
  options.health = [&] {
    return healthy ? Status::ok_status() : unavailable("rank 1 on host a was lost");
  };
  BatchLoop loop(fake, events, std::move(options));
  loop.start();
  healthy = false;
  EXPECT_EQ(loop.wait().code(), Code::kUnavailable);
}

double process_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST(BatchLoop, E25_SleepsWhenIdle) {
  FakeExecutor fake(kLimits);
  EventCollector events;
  BatchLoop loop(fake, events, {});
  loop.start();
  const double before = process_seconds();
  std::this_thread::sleep_for(1s);
  EXPECT_LT(process_seconds() - before, 0.02);
}

}  // namespace
}  // namespace cohort
