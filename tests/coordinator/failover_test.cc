// SPDX-License-Identifier: Apache-2.0
// Replicas that die, hang, repeat and lose: the client must not notice more than a pause.
#include <gmock/gmock.h>

#include <future>

#include "tests/support/coordinator_fixture.h"

namespace cohort {
namespace {

using FailoverTest = CoordinatorTest;
using std::chrono::milliseconds;

FakeReplicaOptions named(const std::string& name, int interval_ms = 2) {
  FakeReplicaOptions options;
  options.name = name;
  options.token_interval = milliseconds(interval_ms);
  options.epoch = std::hash<std::string>()(name) | 1;
  return options;
}

const Json kLong = {{"prompt", "story"}, {"max_tokens", 300}, {"stream", true}};

TEST_F(FailoverTest, E03_ADeadReplicasRequestsGoOnElsewhereExactlyOnce) {
  start();
  std::vector<std::unique_ptr<FakeReplica>> fakes;
  fakes.push_back(replica(named("a")));
  fakes.push_back(replica(named("b")));
  std::vector<std::future<HttpAnswer>> answers;
  for (int i = 0; i < 8; ++i)
    answers.push_back(std::async(std::launch::async, [&] { return complete(kLong); }));
  ASSERT_TRUE(eventually([&] { return fakes[0]->active() + fakes[1]->active() == 8; }));
  std::this_thread::sleep_for(milliseconds(60));
  const size_t victim = fakes[0]->active() > 0 ? 0 : 1;
  fakes[victim]->die();
  for (auto& answer : answers)
    EXPECT_EQ(streamed_text(answer.get()), FakeReplica::letters(ids("story"), 300));
  // What went on elsewhere carried what had been taken, as the prefix of the second attempt.
  bool resumed = false;
  for (const auto& submit : fakes[1 - victim]->submits()) {
    if (submit.attempt() != 2) continue;
    resumed = true;
    for (int i = 0; i < submit.output_prefix_size(); ++i)
      EXPECT_EQ(submit.output_prefix(i), FakeReplica::letter(ids("story"), i));
  }
  EXPECT_TRUE(resumed);
}

TEST_F(FailoverTest, E03_AHungReplicaIsNoticedAndReplaced) {
  options_.service.replicas.suspect_after = milliseconds(300);
  options_.service.replicas.dead_after = milliseconds(800);
  start();
  const auto hung = replica(named("a"));
  auto answer = std::async(std::launch::async, [&] { return complete(kLong); });
  ASSERT_TRUE(eventually([&] { return hung->active() == 1; }));
  hung->hang();
  const auto other = replica(named("b"));
  EXPECT_EQ(streamed_text(answer.get()), FakeReplica::letters(ids("story"), 300));
  EXPECT_EQ(other->submits().size(), 1U);
}

TEST_F(FailoverTest, ALostConnectionIsResumedByTheSameIncarnation) {
  options_.service.replicas.reconnect_grace = milliseconds(3000);
  start();
  const auto fake = replica(named("a"));
  auto answer = std::async(std::launch::async, [&] { return complete(kLong); });
  ASSERT_TRUE(eventually([&] { return fake->active() == 1; }));
  std::this_thread::sleep_for(milliseconds(50));
  fake->lose_connection();
  EXPECT_EQ(streamed_text(answer.get()), FakeReplica::letters(ids("story"), 300));
  EXPECT_EQ(fake->submits().size(), 1U);  // never submitted again
}

TEST_F(FailoverTest, RepeatedEventsAreTakenOnce) {
  start();
  FakeReplicaOptions options = named("a");
  options.duplicate_events = true;
  const auto fake = replica(options);
  EXPECT_EQ(streamed_text(complete(kLong)), FakeReplica::letters(ids("story"), 300));
}

TEST_F(FailoverTest, AGapStartsTheSequenceAgainFromWhatWasTaken) {
  start();
  FakeReplicaOptions options = named("a");
  options.skip_index = 7;
  const auto fake = replica(options);
  EXPECT_EQ(streamed_text(complete(kLong)), FakeReplica::letters(ids("story"), 300));
  ASSERT_EQ(fake->submits().size(), 2U);
  EXPECT_EQ(fake->submits()[1].attempt(), 2U);
  EXPECT_EQ(fake->submits()[1].output_prefix_size(), 7);
}

TEST_F(FailoverTest, ARequestThatWasThereAtTwoCrashesIsNotTriedAgain) {
  start();
  auto first = replica(named("a", 20));
  auto answer = std::async(std::launch::async, [&] { return complete(kLong); });
  ASSERT_TRUE(eventually([&] { return first->active() == 1; }));
  first->die();
  auto second = replica(named("b", 20));
  ASSERT_TRUE(eventually([&] { return second->active() == 1; }));
  second->die();
  const auto third = replica(named("c", 20));
  const HttpAnswer got = answer.get();
  EXPECT_THAT(got.body, testing::HasSubstr("suspected to be the cause"));
  EXPECT_THAT(got.body, testing::Not(testing::HasSubstr("[DONE]")));
  EXPECT_EQ(third->submits().size(), 0U);
  EXPECT_EQ(complete({{"prompt", "other"}}).status, 200);
}

TEST_F(FailoverTest, WaitsForAReplicaForALimitedTime) {
  options_.service.replica_wait = milliseconds(500);
  start();
  const HttpAnswer none = complete({{"prompt", "x"}});
  EXPECT_EQ(none.status, 503);
  EXPECT_THAT(none.head, testing::HasSubstr("Retry-After"));
  auto answer = std::async(std::launch::async, [&] { return complete({{"prompt", "x"}}); });
  std::this_thread::sleep_for(milliseconds(100));
  const auto late = replica(named("a"));
  EXPECT_EQ(answer.get().status, 200);
}

TEST_F(FailoverTest, ARestartedReplicaCountsAndServes) {
  start();
  auto first = replica(named("a", 10));
  auto answer = std::async(std::launch::async, [&] { return complete(kLong); });
  ASSERT_TRUE(eventually([&] { return first->active() == 1; }));
  first->die();
  FakeReplicaOptions again = named("a", 1);
  again.epoch += 2;
  const auto second = replica(again);
  EXPECT_EQ(streamed_text(answer.get()), FakeReplica::letters(ids("story"), 300));
  EXPECT_EQ(server_->service().view()->replicas.at(0).restarts, 1);
}

TEST_F(FailoverTest, AnotherModelIsTurnedAway) {
  start();
  const auto first = replica(named("a"));
  FakeReplicaOptions other = named("b");
  other.fingerprint = "different";
  FakeReplica stranger(server_->session_port(), other);
  EXPECT_TRUE(eventually([&] { return !stranger.reject_reason().empty(); }));
  EXPECT_THAT(stranger.reject_reason(), testing::HasSubstr("same checkpoint"));
}

TEST_F(FailoverTest, AnInvalidRequestIsNotTriedElsewhere) {
  start();
  FakeReplicaOptions options = named("a");
  options.fail_with = "token 5 is not allowed";
  options.invalid_request = true;
  const auto fake = replica(options);
  EXPECT_EQ(complete({{"prompt", "x"}}).status, 400);
  EXPECT_EQ(fake->submits().size(), 1U);
}

// A rank of it has died, say, and its leader still talks: it must not use up a request's attempts.
TEST_F(FailoverTest, E03_AReplicaThatTurnsWorkAwayGetsNoMoreAndCostsNoAttempt) {
  options_.service.most_attempts = 1;
  start();
  FakeReplicaOptions options = named("a");
  options.fail_with = "the replica is shutting down";
  options.leaving = true;
  const auto going = replica(options);
  auto answer = std::async(std::launch::async, [&] { return complete(kLong); });
  ASSERT_TRUE(eventually([&] { return going->submits().size() == 1; }));
  ASSERT_TRUE(eventually(
      [&] { return server_->service().view()->replicas.at(0).state == ReplicaState::draining; }));
  const auto other = replica(named("b"));
  EXPECT_EQ(streamed_text(answer.get()), FakeReplica::letters(ids("story"), 300));
  EXPECT_EQ(going->submits().size(), 1U);
}

TEST_F(FailoverTest, ADrainingReplicaGetsNothingNew) {
  start();
  const auto a = replica(named("a"));
  a->drain();
  ASSERT_TRUE(eventually([&] {
    const auto view = server_->service().view();
    return !view->replicas.empty() && view->replicas[0].state == ReplicaState::draining;
  }));
  const auto b = replica(named("b"));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(complete({{"prompt", "x"}}).status, 200);
  EXPECT_EQ(a->submits().size(), 0U);
  EXPECT_EQ(b->submits().size(), 4U);
}

}  // namespace
}  // namespace cohort
