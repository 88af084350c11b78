// SPDX-License-Identifier: Apache-2.0
#include "worker/end_signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <future>

namespace cohort {
namespace {

TEST(EndSignals, EndAProcessThatLoadsAtOnceAndAreKeptForLaterOtherwise) {
  block_end_signals();
  std::promise<int> ended;
  {
    const EndOnSignal loading([&](int code) { ended.set_value(code); });
    ASSERT_EQ(::kill(::getpid(), SIGTERM), 0);
    auto code = ended.get_future();
    ASSERT_EQ(code.wait_for(std::chrono::seconds(10)), std::future_status::ready);
    EXPECT_EQ(code.get(), kExitDone);
  }
  {
    const EndOnSignal loading([](int) { ADD_FAILURE() << "nobody told it to"; });
  }
  EXPECT_FALSE(told_to_end());
  ASSERT_EQ(::kill(::getpid(), SIGINT), 0);
  EXPECT_TRUE(told_to_end());
}

}  // namespace
}  // namespace cohort
