// SPDX-License-Identifier: Apache-2.0
// What the emulated runtime is for: orders of work that CUDA allows and hardware rarely shows, and
// waits that never end. CUDA C++ Programming Guide, "Asynchronous Concurrent Execution": nothing
// but streams, events and graph edges orders work.
#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda/runtime_fixture.h"

namespace cohort::test {
namespace {
using ::testing::HasSubstr;

class SchedulesTest : public RuntimeTest {
 protected:
  static void use_seed(int seed) {  // 0: newest first
    emu::set_schedule(seed ? emu::Schedule::random : emu::Schedule::newest_first,
                      static_cast<std::uint64_t>(seed));
  }
  // What the work raises while the host waits.
  template <class F>
  static std::string error_of(F f) {
    try {
      f();
    } catch (const emu::Error& e) {
      return e.what;
    }
    return {};
  }
  static emu::Work never(const std::string& name) {
    return {name, {}, [] { return false; }, {}, {}, false};
  }
};

// One stream fills x, another copies it out. True when the copy got what was filled in.
bool producer_and_consumer(bool edge) {
  Stream producer, consumer;
  Event filled;
  OnDevice<int> x(1);
  Pinned<int> out(1);
  EXPECT_EQ(cudaMemsetAsync(x, 1, 4, producer), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(filled, producer), cudaSuccess);
  if (edge) {
    EXPECT_EQ(cudaStreamWaitEvent(consumer, filled, 0), cudaSuccess);
  }
  EXPECT_EQ(cudaMemcpyAsync(out, x, 4, cudaMemcpyDeviceToHost, consumer), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(consumer), cudaSuccess);
  return out[0] == 0x01010101;
}

TEST_F(SchedulesTest, CorrectProgramPassesEverySchedule) {
  EXPECT_TRUE(producer_and_consumer(true));
  for (int seed = 0; seed <= 20; ++seed) {
    use_seed(seed);
    EXPECT_TRUE(producer_and_consumer(true)) << "seed " << seed;
  }
}

TEST_F(SchedulesTest, MissingEdgeShowsUnderHostileSchedules) {
  EXPECT_TRUE(producer_and_consumer(false)) << "issue order hides it";
  use_seed(0);
  EXPECT_FALSE(producer_and_consumer(false));
  int wrong = 0;
  for (int seed = 1; seed <= 20; ++seed) {
    use_seed(seed);
    wrong += !producer_and_consumer(false);
  }
  EXPECT_GE(wrong, 3);
  EXPECT_LE(wrong, 17);
}

// The same two operations as branches of a graph.
int wrong_replays(bool edge) {
  Stream a, b;
  Event fork, filled, join;
  OnDevice<int> x(1);
  Pinned<int> out(1);
  EXPECT_EQ(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(fork, a), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(b, fork, 0), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(x, 1, 4, a), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(filled, a), cudaSuccess);
  if (edge) {
    EXPECT_EQ(cudaStreamWaitEvent(b, filled, 0), cudaSuccess);
  }
  EXPECT_EQ(cudaMemcpyAsync(out, x, 4, cudaMemcpyDeviceToHost, b), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(join, b), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(a, join, 0), cudaSuccess);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  int wrong = 0;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(cudaMemsetAsync(x, 0, 4, a), cudaSuccess);
    EXPECT_EQ(cudaGraphLaunch(exec, a), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
    wrong += out[0] != 0x01010101;
  }
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  return wrong;
}

TEST_F(SchedulesTest, MissingEdgeInAGraph) {
  EXPECT_EQ(wrong_replays(false), 0) << "issue order hides it";
  for (int seed = 0; seed <= 3; ++seed) {
    use_seed(seed);
    EXPECT_EQ(wrong_replays(true), 0);
    EXPECT_GE(wrong_replays(false), 3);
  }
}

TEST_F(SchedulesTest, SeedsAreReproducible) {
  const auto results = [] {
    emu::set_schedule(emu::Schedule::random, 42);
    std::vector<bool> all;
    for (int i = 0; i < 30; ++i) all.push_back(producer_and_consumer(false));
    return all;
  };
  EXPECT_EQ(results(), results());
}

TEST_F(SchedulesTest, EnvironmentChoosesTheSchedule) {
  ASSERT_EQ(setenv("COHORT_EMULATED_SCHEDULE", "newest", 1), 0);
  emu::reset();
  EXPECT_FALSE(producer_and_consumer(false));
  ASSERT_EQ(setenv("COHORT_EMULATED_SCHEDULE", "random:7", 1), 0);
  emu::reset();
  std::vector<bool> environment, call;
  for (int i = 0; i < 20; ++i) environment.push_back(producer_and_consumer(false));
  emu::set_schedule(emu::Schedule::random, 7);
  for (int i = 0; i < 20; ++i) call.push_back(producer_and_consumer(false));
  EXPECT_EQ(environment, call);
  unsetenv("COHORT_EMULATED_SCHEDULE");
}

TEST_F(SchedulesTest, StepsCountPiecesOfWork) {
  Stream s;
  OnDevice<int> x(1);
  const auto before = emu::steps();
  for (int i = 0; i < 5; ++i) ASSERT_EQ(cudaMemsetAsync(x, i, 4, s), cudaSuccess);
  EXPECT_EQ(emu::steps(), before);
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(emu::steps(), before + 5);
}

TEST_F(SchedulesTest, DeadlockIsReportedWithTheNameOfTheWork) {
  Stream s;
  ASSERT_EQ(emu::submit(s, [] { return never("all-reduce#7 rank 0"); }), cudaSuccess);
  EXPECT_THAT(error_of([&] { cudaStreamSynchronize(s); }), HasSubstr("all-reduce#7 rank 0"));
  EXPECT_TRUE(reported("deadlock"));
  // Nothing is right after it until reset(), and what releases things does not throw.
  EXPECT_THAT(error_of([&] { cudaDeviceSynchronize(); }), HasSubstr("another rank failed"));
  void* p = nullptr;
  ASSERT_EQ(cudaMalloc(&p, 4), cudaSuccess);
  EXPECT_EQ(cudaFree(p), cudaErrorUnknown);
}

TEST_F(SchedulesTest, DeadlockOfTwoHostThreads) {
  emu::set_host_threads(2);
  std::string errors[2];
  {
    std::vector<std::jthread> ranks;
    for (int r = 0; r < 2; ++r)
      ranks.emplace_back([&, r] {
        Stream s;
        emu::submit(s, [r] { return never("recv of rank " + std::to_string(r)); });
        errors[r] = error_of([&] { cudaStreamSynchronize(s); });
        emu::host_thread_done();
      });
  }
  EXPECT_TRUE(reported("recv of rank 0"));
  EXPECT_TRUE(reported("recv of rank 1"));
  for (const auto& e : errors) EXPECT_FALSE(e.empty());
}

// A thread waits for what another one, which still runs, enqueues later: no deadlock.
TEST_F(SchedulesTest, WaitingForAnotherHostThreadIsNoDeadlock) {
  emu::set_host_threads(2);
  auto posted = std::make_shared<std::atomic<bool>>(false);
  Stream s, t;
  emu::submit(s,
              [=] { return emu::Work{"recv", {}, [=] { return bool(*posted); }, {}, {}, false}; });
  std::jthread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    emu::submit(t, [=] { return emu::Work{"send", [=] { *posted = true; }, {}, {}, {}, false}; });
    emu::host_thread_done();
  });
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(t), cudaSuccess);
}

// The other thread ends without doing its part.
TEST_F(SchedulesTest, WaitingForAThreadThatIsGoneIsADeadlock) {
  emu::set_host_threads(2);
  Stream s;
  emu::submit(s, [] { return never("recv"); });
  std::jthread other([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    emu::host_thread_done();
  });
  EXPECT_THAT(error_of([&] { cudaStreamSynchronize(s); }), HasSubstr("recv"));
  EXPECT_TRUE(reported("deadlock"));
}

// Work that waits for another process is polled.
TEST_F(SchedulesTest, ExternalWorkIsNoDeadlock) {
  auto arrived = std::make_shared<std::atomic<bool>>(false);
  Stream s;
  emu::submit(s,
              [=] { return emu::Work{"recv", {}, [=] { return bool(*arrived); }, {}, {}, true}; });
  std::jthread process([=] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    *arrived = true;
  });
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
}

// Polling loops of the product have deadlines of their own; a test that forgets one still ends.
TEST_F(SchedulesTest, EndlessPollingHitsTheStallLimit) {
  emu::set_stall_limit(std::chrono::milliseconds(50));
  Stream s;
  Event e;
  emu::submit(s, [] { return never("recv"); });
  ASSERT_EQ(cudaEventRecord(e, s), cudaSuccess);
  EXPECT_THAT(error_of([&] {
                while (cudaEventQuery(e) == cudaErrorNotReady) {
                }
              }),
              HasSubstr("recv"));
  EXPECT_TRUE(reported("deadlock"));
}

// Without a count of host threads, a wait ends by the same limit.
TEST_F(SchedulesTest, EndlessWaitHitsTheStallLimit) {
  emu::set_host_threads(0);
  emu::set_stall_limit(std::chrono::milliseconds(50));
  Stream s;
  emu::submit(s, [] { return never("recv"); });
  EXPECT_THAT(error_of([&] { cudaStreamSynchronize(s); }), HasSubstr("recv"));
  EXPECT_TRUE(reported("deadlock"));
}

// Work that raises, such as a mismatch of collectives, ends every wait.
TEST_F(SchedulesTest, RaisedErrorsReachEveryHostThread) {
  emu::set_host_threads(2);
  Stream a, b;
  emu::submit(a, [] { return never("all-reduce"); });
  std::string other;
  std::jthread waiter([&] { other = error_of([&] { cudaStreamSynchronize(a); }); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  emu::submit(
      b, [] { return emu::Work{"send", [] { emu::raise("sizes differ"); }, {}, {}, {}, false}; });
  const auto mine = error_of([&] { cudaStreamSynchronize(b); });
  waiter.join();
  EXPECT_TRUE(reported("sizes differ"));
  EXPECT_TRUE((mine == "sizes differ") != (other == "sizes differ")) << mine << " / " << other;
}

// Many host threads with a stream each, which all feed one consumer.
TEST_F(SchedulesTest, HostThreadsShareTheRuntime) {
  constexpr int kThreads = 4, kRounds = 50;
  emu::set_host_threads(kThreads);
  emu::set_schedule(emu::Schedule::random, 3);
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < kRounds; ++i) wrong += !producer_and_consumer(true);
        emu::host_thread_done();
      });
  }
  EXPECT_EQ(wrong, 0);
}
}  // namespace
}  // namespace cohort::test
