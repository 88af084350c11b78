// SPDX-License-Identifier: Apache-2.0
// Making, splitting, ending and aborting communicators of the emulated NCCL, ranks as threads.
// Rules are those of the NCCL 2.28 user guide, section named in each test.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cstdlib>

#include "tests/cuda/nccl_ranks.h"

namespace cohort::test {
namespace {
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

// Asks for the state until it is not in progress; how often that took.
int settle(ncclComm_t comm, ncclResult_t* state) {
  int asked = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  do {
    EXPECT_EQ(ncclCommGetAsyncError(comm, state), ncclSuccess);
    ++asked;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  } while (*state == ncclInProgress && std::chrono::steady_clock::now() < deadline);
  return asked;
}

// Sets an environment variable for a test.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  Environment(const Environment&) = delete;
  ~Environment() { ::unsetenv(name_); }

 private:
  const char* name_;
};

// Sections "ncclGetVersion", "ncclCommCount", "ncclCommCuDevice", "ncclCommUserRank".
TEST_F(NcclTest, CommunicatorsKnowTheirPlace) {
  all_well(3, [](Rank& r) {
    int version = 0, count = 0, device = -1, rank = -1;
    EXPECT_EQ(ncclGetVersion(&version), ncclSuccess);
    EXPECT_EQ(version, NCCL_VERSION_CODE);
    EXPECT_EQ(ncclCommCount(r.comm, &count), ncclSuccess);
    EXPECT_EQ(ncclCommCuDevice(r.comm, &device), ncclSuccess);
    EXPECT_EQ(ncclCommUserRank(r.comm, &rank), ncclSuccess);
    EXPECT_EQ(count, 3);
    EXPECT_EQ(device, r.rank);
    EXPECT_EQ(rank, r.rank);
  });
  EXPECT_STREQ(ncclGetErrorString(ncclSuccess), "no error");
}

// Section "ncclCommInitRank": every rank once, of one number of ranks, by an id of ncclGetUniqueId.
TEST_F(NcclTest, WrongRanksAreRefused) {
  ncclComm_t comm{}, twin{};
  const auto id = unique_id();
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument);
  ncclUniqueId nonsense{};
  EXPECT_EQ(ncclCommInitRank(&comm, 1, nonsense, 0), ncclSystemError);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("no unique id"));
  auto config = non_blocking();
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
  EXPECT_EQ(ncclCommInitRank(&twin, 2, id, 0), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("two callers want to be rank 0"));
  EXPECT_EQ(ncclCommInitRank(&twin, 3, id, 1), ncclSystemError);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("another rank gave 2 ranks"));
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  config.magic = 0;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInvalidArgument);
}

TEST_F(NcclTest, InitNamesTheRanksThatDidNotCome) {
  const Environment timeout("COHORT_EMULATED_NCCL_TIMEOUT", "0.1");
  ncclComm_t comm{};
  EXPECT_EQ(ncclCommInitRank(&comm, 3, unique_id(), 1), ncclSystemError);
  EXPECT_EQ(comm, nullptr);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("rank 1 of 3 waited 100 ms for the "
                                                   "communicator's ranks 0, 2"));
}

// Section "Creating a communicator", one thread with several devices: within a group.
TEST_F(NcclTest, OneThreadMakesAllRanksInAGroup) {
  emu::set_device_count(2);
  const auto id = unique_id();
  Rank a(0, 2), b(1, 2);
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(ncclCommInitRank(&a.comm, 2, id, 0), ncclSuccess);
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(ncclCommInitRank(&b.comm, 2, id, 1), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  const Values<float> y(std::vector<float>(4, 2.0f));
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  const Values<float> x(std::vector<float>(4, 1.0f));
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclAllReduce(x, x, 4, ncclFloat32, ncclSum, a.comm, a.stream), ncclSuccess);
  EXPECT_EQ(ncclAllReduce(y, y, 4, ncclFloat32, ncclSum, b.comm, b.stream), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  a.sync(), b.sync();
  EXPECT_EQ(x.get(), std::vector<float>(4, 3.0f));
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(y.get(), std::vector<float>(4, 3.0f));
}

// Sections "ncclConfig_t", blocking, and "ncclCommGetAsyncError": every call may be in progress,
// and its work is on the stream only after that.
TEST_F(NcclTest, NonBlockingCallsAreInProgressUntilAsked) {
  const auto id = unique_id();
  std::atomic<int> asked_first{0};
  all_well(
      2,
      [&](Rank& r) {
        auto config = non_blocking();
        ncclResult_t state = ncclSuccess;
        EXPECT_EQ(ncclCommInitRankConfig(&r.comm, 2, id, r.rank, &config), ncclInProgress);
        if (r.rank == 0) {  // the other rank waits for this
          EXPECT_EQ(ncclCommGetAsyncError(r.comm, &state), ncclSuccess);
          asked_first = 1;
        }
        while (asked_first == 0) std::this_thread::yield();
        settle(r.comm, &state);
        EXPECT_EQ(state, ncclSuccess);
        const Values<float> x(std::vector<float>(4, 1.0f));
        EXPECT_EQ(ncclAllReduce(x, x, 4, ncclFloat32, ncclSum, r.comm, r.stream), ncclInProgress);
        r.sync();  // nothing to wait for yet
        EXPECT_EQ(x.get(), std::vector<float>(4, 1.0f));
        EXPECT_EQ(ncclAllReduce(x, x, 4, ncclFloat32, ncclSum, r.comm, r.stream),
                  ncclInvalidArgument);
        EXPECT_THAT(ncclGetLastError(r.comm), HasSubstr("before its previous call has succeeded"));
        EXPECT_GT(settle(r.comm, &state), 1);
        EXPECT_EQ(state, ncclSuccess);
        r.sync();
        EXPECT_EQ(x.get(), std::vector<float>(4, 2.0f));
        EXPECT_EQ(ncclAllReduce(x, x, 4, ncclFloat32, ncclSum, r.comm, r.stream), ncclInProgress);
        settle(r.comm, &state);
        EXPECT_EQ(ncclCommFinalize(r.comm), ncclInProgress);
        settle(r.comm, &state);
        EXPECT_EQ(state, ncclSuccess);
        r.sync();
        EXPECT_EQ(x.get(), std::vector<float>(4, 4.0f));
      },
      false);
}

// Section "ncclCommSplit": ranks of a color, ordered by key, then by old rank.
TEST_F(NcclTest, SplitGroupsByColorAndOrdersByKey) {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    emu::set_schedule(emu::Schedule::random, seed);
    all_well(4, [](Rank& r) {
      for (int round = 0; round < 2; ++round) {
        ncclComm_t half{};
        const int color = r.rank == 3 ? NCCL_SPLIT_NOCOLOR : 5;
        EXPECT_EQ(ncclCommSplit(r.comm, color, -r.rank, &half, nullptr), ncclSuccess);
        EXPECT_EQ(half == nullptr, r.rank == 3);
        if (half == nullptr) continue;
        int rank = -1, count = 0;
        EXPECT_EQ(ncclCommUserRank(half, &rank), ncclSuccess);
        EXPECT_EQ(ncclCommCount(half, &count), ncclSuccess);
        EXPECT_EQ(rank, 2 - r.rank);
        EXPECT_EQ(count, 3);
        const Values<std::int32_t> own(std::vector<std::int32_t>{r.rank}), all(3);
        EXPECT_EQ(ncclAllGather(own, all, 1, ncclInt32, half, r.stream), ncclSuccess);
        r.sync();
        EXPECT_EQ(all.get(), (std::vector<std::int32_t>{2, 1, 0}));
        EXPECT_EQ(ncclCommDestroy(half), ncclSuccess);
      }
      const Values<float> x(std::vector<float>(1, 1.0f));  // the parent still works
      EXPECT_EQ(ncclAllReduce(x, x, 1, ncclFloat32, ncclSum, r.comm, r.stream), ncclSuccess);
      r.sync();
      EXPECT_EQ(x.get()[0], 4.0f);
    });
  }
}

TEST_F(NcclTest, NonBlockingSplit) {
  all_well(2, [](Rank& r) {
    auto config = non_blocking();
    ncclComm_t own{};
    ncclResult_t state = ncclSuccess;
    EXPECT_EQ(ncclCommSplit(r.comm, r.rank, 0, &own, &config), ncclInProgress);
    settle(r.comm, &state);
    EXPECT_EQ(state, ncclSuccess);
    settle(own, &state);
    EXPECT_EQ(state, ncclSuccess);
    int count = 0;
    EXPECT_EQ(ncclCommCount(own, &count), ncclSuccess);
    EXPECT_EQ(count, 1);
    EXPECT_EQ(ncclCommDestroy(own), ncclSuccess);
  });
}

// Section "Fault Tolerance": the others learn of an abort by ncclCommGetAsyncError, and abort too.
TEST_F(NcclTest, AnAbortReachesThePeersAndFreesTheirStreams) {
  all_well(3, [](Rank& r) {
    const Values<float> x(std::vector<float>(4, 1.0f));
    if (r.rank == 2) {
      EXPECT_EQ(ncclCommAbort(r.comm), ncclSuccess);
      r.comm = nullptr;
      return;
    }
    EXPECT_EQ(ncclAllReduce(x, x, 4, ncclFloat32, ncclSum, r.comm, r.stream), ncclSuccess);
    ncclResult_t state = ncclSuccess;
    const auto start = std::chrono::steady_clock::now();
    while (state == ncclSuccess &&
           std::chrono::steady_clock::now() - start < std::chrono::seconds(5)) {
      EXPECT_EQ(cudaStreamQuery(r.stream), cudaErrorNotReady);
      EXPECT_EQ(ncclCommGetAsyncError(r.comm, &state), ncclSuccess);
    }
    EXPECT_EQ(state, ncclRemoteError);
    EXPECT_THAT(ncclGetLastError(r.comm), HasSubstr("aborted"));
    EXPECT_EQ(ncclAllReduce(x, x, 4, ncclFloat32, ncclSum, r.comm, r.stream), ncclRemoteError);
    EXPECT_EQ(ncclCommAbort(r.comm), ncclSuccess);
    r.comm = nullptr;
    r.sync();  // the call that could not end has gone
  });
}

TEST_F(NcclTest, AWaitEndsWithTheNameAndTheMissingRanks) {
  const Environment timeout("COHORT_EMULATED_NCCL_TIMEOUT", "0.2");
  std::atomic<bool> over{false};
  auto thrown = on_ranks(3, [&](Rank& r) {
    emu::set_host_threads(0);  // one of them does not wait for the device: no exact deadlock
    const Values<float> x(4);
    EXPECT_EQ(ncclAllReduce(x, x, 4, ncclFloat32, ncclSum, r.comm, r.stream), ncclSuccess);
    if (r.rank == 1) r.sync();
    if (r.rank != 1) {
      EXPECT_EQ(ncclBroadcast(x, x, 3, ncclFloat32, 0, r.comm, r.stream), ncclSuccess);
    }
    try {
      r.sync();
    } catch (...) {
      over = true;
      throw;
    }
    while (!over) std::this_thread::yield();
  });
  EXPECT_THAT(thrown, Contains(AllOf(HasSubstr("ncclBroadcast of 3 x float32, root 0, number 2"),
                                     HasSubstr("waited 200 ms for rank 1"),
                                     HasSubstr("rank 1 has announced 1 collectives"))));
}

// Section "Destroying a communicator": nothing may use it afterwards, graphs included.
TEST_F(NcclTest, AGraphMayNotOutliveItsCommunicator) {
  auto thrown = on_ranks(2, [](Rank& r) {
    const Values<float> x(4);
    cudaGraph_t graph{};
    cudaGraphExec_t exec{};
    EXPECT_EQ(cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(ncclAllReduce(x, x, 4, ncclFloat32, ncclSum, r.comm, r.stream), ncclSuccess);
    EXPECT_EQ(cudaStreamEndCapture(r.stream, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    EXPECT_EQ(ncclCommDestroy(r.comm), ncclSuccess);
    r.comm = nullptr;
    try {
      cudaGraphLaunch(exec, r.stream);
    } catch (...) {
      EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
      throw;
    }
  });
  EXPECT_THAT(thrown, Contains(HasSubstr("destroyed communicator")));
}

// Section "User Buffer Registration", "ncclCommWindowRegister": 4096-byte alignment, memory of
// ncclMemAlloc.
TEST_F(NcclTest, WindowsNeedAlignedMemoryOfNccl) {
  all_well(2, [](Rank& r) {
    void* p = nullptr;
    ncclWindow_t window{}, wrong{};
    EXPECT_EQ(ncclMemAlloc(&p, 10000), ncclSuccess);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % NCCL_WIN_REQUIRED_ALIGNMENT, 0u);
    const int symmetric = NCCL_WIN_COLL_SYMMETRIC;
    EXPECT_EQ(ncclCommWindowRegister(r.comm, p, 10000, &window, symmetric), ncclSuccess);
    EXPECT_NE(window, nullptr);
    EXPECT_EQ(ncclCommWindowRegister(r.comm, static_cast<char*>(p) + 256, 64, &wrong, symmetric),
              ncclInvalidArgument);
    EXPECT_THAT(ncclGetLastError(r.comm), HasSubstr("4096"));
    EXPECT_EQ(ncclCommWindowRegister(r.comm, p, 20000, &wrong, symmetric), ncclInvalidArgument);
    auto* x = static_cast<float*>(p);
    EXPECT_EQ(cudaMemsetAsync(x, 0, 64, r.stream), cudaSuccess);
    EXPECT_EQ(ncclAllReduce(x, x, 16, ncclFloat32, ncclSum, r.comm, r.stream), ncclSuccess);
    r.sync();
    EXPECT_EQ(x[15], 0.0f);
    EXPECT_EQ(ncclCommWindowDeregister(r.comm, window), ncclSuccess);
    EXPECT_EQ(ncclCommWindowDeregister(r.comm, window), ncclInvalidArgument);
    void* handle = nullptr;
    EXPECT_EQ(ncclCommRegister(r.comm, p, 4096, &handle), ncclSuccess);
    EXPECT_EQ(ncclCommDeregister(r.comm, handle), ncclSuccess);
    EXPECT_EQ(ncclMemFree(p), ncclSuccess);
    EXPECT_EQ(ncclMemFree(p), ncclInvalidArgument);
  });
}

TEST_F(NcclTest, InjectedFaultsAreReturned) {
  emu::fail_next("ncclAllReduce", ncclSystemError, 1);
  std::atomic<int> failed{0};
  on_ranks(2, [&](Rank& r) {
    const Values<float> x(4);
    for (int i = 0; i < 2; ++i)
      failed += ncclAllReduce(x, x, 4, ncclFloat32, ncclSum, r.comm, r.stream) == ncclSystemError;
    EXPECT_EQ(ncclCommAbort(r.comm), ncclSuccess);
    r.comm = nullptr;
  });
  EXPECT_EQ(failed, 1);
}
}  // namespace
}  // namespace cohort::test
