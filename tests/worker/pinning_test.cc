// SPDX-License-Identifier: Apache-2.0
// Other programs may have claimed processors while these tests run: what is claimed must be right,
// how much of it there is depends on them.
#include "worker/pinning.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <set>
#include <thread>

namespace cohort {
namespace {

std::set<int> affinity() {
  cpu_set_t set;
  std::set<int> processors;
  EXPECT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
  for (int i = 0; i < CPU_SETSIZE; i++)
    if (CPU_ISSET(i, &set)) processors.insert(i);
  return processors;
}

TEST(PinningTest, UsableProcessorsAreThoseOfTheThread) {
  const std::vector<int> usable = usable_processors();
  EXPECT_EQ(std::set<int>(usable.begin(), usable.end()), affinity());
  EXPECT_EQ(usable.size(), affinity().size());
}

TEST(PinningTest, NothingIsPinnedByDefault) {
  const Pinning none;
  EXPECT_FALSE(none.pinned());
  const std::set<int> before = affinity();
  none.pin_step_thread();
  const Pinning::Confined confined(none);
  EXPECT_EQ(affinity(), before);
}

TEST(PinningTest, MoreThreadsThanProcessorsAreNotPinned) {
  const int processors = int(usable_processors().size());
  EXPECT_FALSE(Pinning::claim(processors + 1, 1).pinned());
  if (int(std::thread::hardware_concurrency()) == processors) {
    EXPECT_FALSE(Pinning::claim(1, processors + 1).pinned());
  }
}

TEST(PinningTest, ClaimsDoNotShareAProcessor) {
  std::vector<Pinning> claims;
  std::set<int> taken;
  for (size_t i = 0; i <= usable_processors().size(); i++) {
    claims.push_back(Pinning::claim(1, 1));
    for (int processor : claims.back().processors())
      EXPECT_TRUE(taken.insert(processor).second) << processor;
  }
  // There were more claims than processors.
  EXPECT_FALSE(claims.back().pinned());
}

TEST(PinningTest, ThreadsAreWhereTheyArePinned) {
  const Pinning one = Pinning::claim(1, 1);
  if (!one.pinned()) GTEST_SKIP() << "all processors are claimed by other programs";
  const std::set<int> before = affinity(), wanted = {one.processors()[0]};
  std::thread([&] {
    {
      const Pinning::Confined confined(one);
      EXPECT_EQ(affinity(), wanted);
      std::thread([&] { EXPECT_EQ(affinity(), wanted); }).join();
    }
    EXPECT_EQ(affinity(), before);
    one.pin_step_thread();
    EXPECT_EQ(affinity(), wanted);
  }).join();
  EXPECT_EQ(affinity(), before);
}

TEST(PinningTest, ThreadsOfAPoolHaveAProcessorEach) {
  const Pinning two = Pinning::claim(2, 1);
  if (!two.pinned()) GTEST_SKIP() << "there are no two processors that nobody has claimed";
  const std::set<int> before = affinity();
  ThreadPool threads(2);
  two.pin_pool(threads);
  std::set<int> of_thread[2];
  threads.run([&](int thread) { of_thread[thread] = affinity(); });
  EXPECT_EQ(of_thread[0], before);  // the caller pins itself when it becomes the step thread
  EXPECT_EQ(of_thread[1], (std::set<int>{two.processors()[1]}));
  EXPECT_NE(two.processors()[0], two.processors()[1]);
}

}  // namespace
}  // namespace cohort
