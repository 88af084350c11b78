// SPDX-License-Identifier: Apache-2.0
#include "worker/watchdog.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace cohort {
namespace {

using std::chrono::milliseconds;

TEST(StepPatienceTest, IsTenTimesTheUsualButNeverBelowTheLeast) {
  StepPatience patience(std::chrono::seconds(10));
  EXPECT_EQ(patience.allowed(1), std::chrono::seconds(60));  // nothing is known yet
  for (int i = 0; i < 100; i++) patience.learn(milliseconds(5), 1);
  EXPECT_EQ(patience.allowed(1), std::chrono::seconds(10));
  EXPECT_NEAR(seconds(patience.allowed(400)), 10 * 0.005 * 400, 0.01);
  for (int i = 0; i < 1000; i++) patience.learn(std::chrono::seconds(3), 400);
  EXPECT_NEAR(seconds(patience.allowed(1)), 30, 0.1);
}

struct Recorder {
  std::atomic<int> reports{0}, stalls{0};
  std::promise<Status> stalled;
  std::promise<void> hopeless;
  Watchdog::Calls calls() {
    return {.progress =
                [] {
                  return Progress{6, true, "all-reduce tp, layer 17"};
                },
            .report = [this](const Progress&) { reports++; },
            .stalled =
                [this](const Status& why) {
                  stalls++;
                  stalled.set_value(why);
                },
            .hopeless = [this] { hopeless.set_value(); }};
  }
};

TEST(WatchdogTest, SaysOnceWhereAStepStalledAndGivesUpWhenItStays) {
  Recorder recorder;
  Watchdog watchdog(milliseconds(50), recorder.calls());
  watchdog.begin(1);
  watchdog.end();  // learned: the next one may take the least
  watchdog.begin(1);
  auto stalled = recorder.stalled.get_future();
  ASSERT_EQ(stalled.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  const Status why = stalled.get();
  EXPECT_EQ(why.code(), Code::kDeadlineExceeded);
  EXPECT_NE(why.message().find("step 7"), std::string::npos) << why.message();
  EXPECT_NE(why.message().find("all-reduce tp, layer 17"), std::string::npos) << why.message();
  EXPECT_EQ(recorder.hopeless.get_future().wait_for(std::chrono::seconds(20)),
            std::future_status::ready);
  EXPECT_EQ(recorder.stalls, 1);
}

TEST(WatchdogTest, E25_SleepsWhileIdleAndReportsWhileBusy) {
  Recorder recorder;
  Watchdog watchdog(std::chrono::seconds(30), recorder.calls());
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_LE(recorder.reports, 2);
  watchdog.begin(1);
  for (int i = 0; i < 100 && recorder.reports < 4; i++)
    std::this_thread::sleep_for(milliseconds(50));
  EXPECT_GE(recorder.reports, 4);
  watchdog.end();
  EXPECT_EQ(recorder.stalls, 0);
}

}  // namespace
}  // namespace cohort
