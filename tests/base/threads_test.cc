// SPDX-License-Identifier: Apache-2.0
#include "base/threads.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <set>

#include "base/clock.h"

namespace cohort {
namespace {

TEST(ThreadPool, RunsOnEveryThreadOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.size(), threads);
    std::vector<std::thread::id> ids(static_cast<size_t>(threads));
    std::vector<int> calls(static_cast<size_t>(threads));
    for (int round = 0; round < 200; round++)
      pool.run([&](int thread) {
        calls[size_t(thread)]++;
        ids[size_t(thread)] = std::this_thread::get_id();
      });
    EXPECT_EQ(calls, std::vector<int>(size_t(threads), 200));
    EXPECT_EQ(std::set(ids.begin(), ids.end()).size(), size_t(threads));
    EXPECT_EQ(ids[0], std::this_thread::get_id());
  }
}

TEST(ThreadPool, ParallelForCoversEveryItemOnce) {
  ThreadPool pool(3);
  for (int64_t items : {0, 1, 2, 3, 4, 100, 1001}) {
    std::vector<std::atomic<int>> seen(static_cast<size_t>(items));
    pool.parallel_for(items, [&](int64_t begin, int64_t end) {
      EXPECT_LT(begin, end);
      for (int64_t i = begin; i < end; i++) seen[size_t(i)]++;
    });
    for (const std::atomic<int>& count : seen) EXPECT_EQ(count.load(), 1);
  }
  pool.parallel_for(-1, [](int64_t, int64_t) { FAIL() << "no items, no work"; });
}

TEST(ThreadPool, CountsTheRegionsOfMoreThanOneThread) {
  ThreadPool alone(1), pool(3);
  for (ThreadPool* p : {&alone, &pool}) {
    p->run([](int) {});
    p->parallel_for(7, [](int64_t, int64_t) {});
    p->parallel_for(1, [](int64_t, int64_t) {});  // by the caller
    p->parallel_for(0, [](int64_t, int64_t) {});
  }
  EXPECT_EQ(alone.regions(), 0);
  EXPECT_EQ(pool.regions(), 2);
}

TEST(ThreadPool, WorkSeesWhatTheCallerWroteAndTheCallerSeesTheWork) {
  ThreadPool pool(4);
  std::vector<int64_t> in(4), out(4);
  for (int64_t round = 1; round <= 2000; round++) {
    std::fill(in.begin(), in.end(), round);
    pool.run([&](int thread) { out[size_t(thread)] = in[size_t(thread)] * 2; });
    for (int64_t value : out) ASSERT_EQ(value, round * 2);
  }
}

TEST(ThreadPool, WakesAfterASleep) {
  ThreadPool pool(2);
  std::atomic<int> calls{0};
  for (int round = 0; round < 5; round++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    pool.run([&](int) { calls++; });
  }
  EXPECT_EQ(calls.load(), 10);
}

TEST(ThreadPool, E25IdleThreadsCostNothing) {
  ThreadPool pool(4);
  pool.run([](int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // until they sleep
  const auto cpu_time = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return double(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           double(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
  };
  const double before = cpu_time();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LT(cpu_time() - before, 0.5 * 0.02);
}

TEST(SpinWaitChange, ReturnsTheNewValue) {
  std::atomic<uint32_t> value{7};
  EXPECT_EQ(spin_wait_change(value, 6), 7u);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    value.store(9);
    value.notify_all();
  });
  EXPECT_EQ(spin_wait_change(value, 7), 9u);
  other.join();
}

}  // namespace
}  // namespace cohort
