// SPDX-License-Identifier: Apache-2.0
// The line between `cohort up` and its daemons on other hosts, and what a supervisor does with it.
#include "tools/host_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tools/supervisor.h"

namespace cohort {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr ControlTimes kTimes{.heartbeat = 50ms, .lease = 300ms};

std::unique_ptr<HostWatch> make_watch(Duration start_limit = 60s) {
  auto watch = HostWatch::create({.listen = "127.0.0.1",
                                  .hosts = {"b", "c"},
                                  .agent = "ssh",
                                  .start_limit = start_limit,
                                  .times = kTimes});
  COHORT_CHECK(watch.ok());
  return std::move(*watch);
}

std::unique_ptr<ControlLink> daemon(const HostWatch& watch, int number) {
  auto link = ControlLink::connect(watch.address(), number, "name", kTimes, 5s);
  COHORT_CHECK(link.ok());
  return std::move(*link);
}

// What poll() says once it is not OK.
Status await_failure(LaunchWatch& watch, bool loaded) {
  const Deadline deadline = Deadline::after(10s);
  while (!deadline.expired()) {
    if (Status status = watch.poll(loaded); !status.ok()) return status;
    std::this_thread::sleep_for(10ms);
  }
  return {};
}

TEST(HostWatch, NamesHostsThatDoNotCome) {
  const auto watch = make_watch(100ms);
  const auto b = daemon(*watch, 1);
  const Status status = await_failure(*watch, false);
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("nothing was started on: c (by 'ssh')"));
}

TEST(HostWatch, GivesRanksNoMoreTimeToMeetEither) {
  const auto watch = make_watch(100ms);
  const auto b = daemon(*watch, 1), c = daemon(*watch, 2);
  EXPECT_THAT(await_failure(*watch, false).message(), HasSubstr("did not meet"));
}

TEST(HostWatch, ContentOnceRanksLoad) {
  const auto watch = make_watch(100ms);
  const auto b = daemon(*watch, 1), c = daemon(*watch, 2);
  const Deadline deadline = Deadline::after(400ms);
  while (!deadline.expired()) EXPECT_TRUE(watch->poll(true).ok());
  EXPECT_EQ(watch->explanation(), "");
}

TEST(HostWatch, NamesAHostWhoseDaemonIsGone) {
  const auto watch = make_watch();
  const auto b = daemon(*watch, 1);
  auto c = daemon(*watch, 2);
  EXPECT_TRUE(watch->poll(true).ok());
  c.reset();
  EXPECT_THAT(await_failure(*watch, true).message(), HasSubstr("host c"));
}

TEST(HostWatch, ItsEndTellsTheDaemons) {
  auto watch = make_watch();
  const auto b = daemon(*watch, 1);
  watch.reset();
  const auto frame = b->next(5s);
  EXPECT_TRUE(frame.ok() ? frame->type == FrameType::shutdown
                         : frame.status().code() == Code::kUnavailable);
}

// Gives a start up from the beginning.
class Hopeless : public LaunchWatch {
 public:
  explicit Hopeless(Status why) : why_(std::move(why)) {}
  Status poll(bool) override { return why_; }
  std::string explanation() override { return "explained"; }

 private:
  const Status why_;
};

ReplicaSupervisor watched(const std::string& script, Status why) {
  return ReplicaSupervisor("r", [script, why]() -> Result<Launch> {
    return Launch{{{"/bin/sh", "-c", script}, {}}, std::make_unique<Hopeless>(why)};
  });
}

void poll_until_waiting(ReplicaSupervisor& replica) {
  const Deadline deadline = Deadline::after(10s);
  while (!deadline.expired() && replica.phase() != ReplicaPhase::waiting) {
    replica.poll_once(std::chrono::steady_clock::now());
    std::this_thread::sleep_for(10ms);
  }
  ASSERT_EQ(replica.phase(), ReplicaPhase::waiting);
}

TEST(WatchedReplica, IsKilledAndTheReasonTold) {
  auto replica = watched("trap '' TERM; while :; do sleep 1; done", deadline_exceeded("too late"));
  poll_until_waiting(replica);
  EXPECT_EQ(replica.failure(), "r ended with killed by signal 9: too late");
}

TEST(WatchedReplica, MayEndByItselfFirst) {
  auto replica = watched("sleep 0.2; exit 70", unavailable("host b is lost"));
  poll_until_waiting(replica);
  EXPECT_EQ(replica.failure(), "r ended with exit status 70: explained");
}

TEST(WatchedReplica, WhatCannotBeStartedIsTriedAgain) {
  ReplicaSupervisor replica(
      "r", []() -> Result<Launch> { return unavailable("the address is gone with its cable"); });
  poll_until_waiting(replica);
  EXPECT_THAT(replica.failure(), HasSubstr("the address is gone"));
}

}  // namespace
}  // namespace cohort
