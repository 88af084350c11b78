// SPDX-License-Identifier: Apache-2.0
#include "tools/supervisor.h"

#include <gtest/gtest.h>

#include <thread>

namespace cohort {
namespace {

using namespace std::chrono_literals;

Command shell(const std::string& script) { return {{"/bin/sh", "-c", script}, {}}; }

// step: how far time moves ahead between polls, beside its own pace.
template <class Condition>
bool poll_until(ReplicaSupervisor& replica, Condition condition, Duration step = 0ns) {
  Duration shift = 0ns;
  const Deadline deadline = Deadline::after(10s);
  while (!deadline.expired()) {
    replica.poll_once(std::chrono::steady_clock::now() + shift);
    if (condition()) return true;
    shift += step;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

TEST(BackOff, DoublesUpToHalfAMinuteAndStartsAnewAfterSuccess) {
  BackOff back_off;
  std::vector<double> delays;
  for (int i = 0; i < 7; i++) delays.push_back(seconds(back_off.next_delay()));
  EXPECT_EQ(delays, (std::vector<double>{1, 2, 4, 8, 16, 30, 30}));
  back_off.succeeded();
  EXPECT_EQ(seconds(back_off.next_delay()), 1);
}

TEST(ReplicaSupervisor, FollowsProgressUntilItServes) {
  ReplicaSupervisor replica("r", shell("echo progress 0.5; sleep 0.3; echo serving; sleep 60"));
  EXPECT_TRUE(poll_until(replica, [&] { return replica.progress() == 0.5; }));
  EXPECT_EQ(replica.phase(), ReplicaPhase::loading);
  EXPECT_TRUE(poll_until(replica, [&] { return replica.phase() == ReplicaPhase::serving; }));
  replica.terminate();
  EXPECT_TRUE(replica.ended(5s));
}

TEST(ReplicaSupervisor, StartsAgainAfterTheDelayAndNotBefore) {
  ReplicaSupervisor replica("r", shell("exit 70"));
  ASSERT_TRUE(poll_until(replica, [&] { return replica.phase() == ReplicaPhase::waiting; }));
  replica.poll_once(std::chrono::steady_clock::now());
  EXPECT_EQ(replica.restarts(), 0);
  EXPECT_TRUE(poll_until(
      replica, [&] { return replica.restarts() == 1; }, 2s));
}

TEST(ReplicaSupervisor, GivesUpAtOnceOnWrongUse) {
  ReplicaSupervisor replica("r", shell("exit 64"));
  EXPECT_TRUE(poll_until(replica, [&] { return replica.phase() == ReplicaPhase::failed; }));
  EXPECT_EQ(replica.restarts(), 0);
  EXPECT_EQ(replica.failure(), "r ended with exit status 64");
}

TEST(ReplicaSupervisor, GivesUpAfterManyFailuresInARow) {
  ReplicaSupervisor replica("r", shell("exit 1"));
  EXPECT_TRUE(poll_until(
      replica, [&] { return replica.phase() == ReplicaPhase::failed; }, 10s));
  EXPECT_EQ(replica.restarts(), ReplicaSupervisor::kMaxFailures - 1);
}

TEST(ReplicaSupervisor, KillsWhatIgnoresSigterm) {
  ReplicaSupervisor replica("r", shell("trap '' TERM; echo serving; while :; do sleep 1; done"));
  ASSERT_TRUE(poll_until(replica, [&] { return replica.phase() == ReplicaPhase::serving; }));
  replica.terminate();
  EXPECT_FALSE(replica.ended(300ms));
  EXPECT_TRUE(replica.ended(0s));
}

}  // namespace
}  // namespace cohort
