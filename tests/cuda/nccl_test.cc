// SPDX-License-Identifier: Apache-2.0
// The emulated NCCL, ranks as threads: results against double precision, and rules of the NCCL 2.28
// user guide (docs.nvidia.com/deeplearning/nccl/user-guide; section named in each test).
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gmock/gmock.h>

#include <cmath>
#include <random>
#include <set>

#include "tests/cuda/nccl_ranks.h"

namespace cohort::test {
namespace {
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;

// Element i of rank r's input, the same in every process and thread.
double value(int r, std::size_t i) {
  std::mt19937 random(unsigned(1000 * r + int(i)));
  return std::uniform_real_distribution<float>(-1, 1)(random);
}
template <class T>
std::vector<T> input(int r, std::size_t n, std::size_t from = 0) {
  std::vector<T> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = T(float(value(r, from + i)));
  return v;
}
template <class T>
double wide(T x) {
  if constexpr (std::is_same_v<T, double>)
    return x;
  else
    return double(float(x));
}
template <class T>
double sum_of(int ranks, std::size_t i) {
  double s = 0;
  for (int r = 0; r < ranks; ++r) s += wide(T(float(value(r, i))));
  return s;
}

// Sections "ncclAllReduce", "ncclReduceScatter": sums of every float type; one rounding to the type
// for each rank that is added.
template <class T>
void check_sums(Rank& r, ncclDataType_t type, double rounding, std::size_t n) {
  const Values<T> in(input<T>(r.rank, n * r.size));
  const Values<T> all(n * r.size), part(n);
  EXPECT_EQ(ncclAllReduce(in, all, n * r.size, type, ncclSum, r.comm, r.stream), ncclSuccess);
  EXPECT_EQ(ncclReduceScatter(in, part, n, type, ncclSum, r.comm, r.stream), ncclSuccess);
  r.sync();
  const auto a = all.get(), p = part.get();
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(wide(a[i]), sum_of<T>(r.size, i), r.size * r.size * rounding) << i;
  for (std::size_t i = 0; i < n; ++i)
    EXPECT_NEAR(wide(p[i]), sum_of<T>(r.size, r.rank * n + i), r.size * r.size * rounding) << i;
}

// Sections "ncclBroadcast", "ncclAllGather", "ncclAlltoAll", "ncclReduce".
void check_moves(Rank& r, std::size_t n) {
  const int root = r.size - 1;
  const Values<float> in(input<float>(r.rank, n * r.size));
  const Values<float> cast(n), gathered(n * r.size), swapped(n * r.size), reduced(n);
  EXPECT_EQ(ncclBroadcast(in, cast, n, ncclFloat32, root, r.comm, r.stream), ncclSuccess);
  EXPECT_EQ(ncclAllGather(in, gathered, n, ncclFloat32, r.comm, r.stream), ncclSuccess);
  EXPECT_EQ(ncclAlltoAll(in, swapped, n, ncclFloat32, r.comm, r.stream), ncclSuccess);
  EXPECT_EQ(ncclReduce(in, reduced, n, ncclFloat32, ncclMax, root, r.comm, r.stream), ncclSuccess);
  r.sync();
  EXPECT_EQ(cast.get(), input<float>(root, n));
  const auto g = gathered.get(), s = swapped.get(), m = reduced.get();
  for (int q = 0; q < r.size; ++q)
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_EQ(g[q * n + i], float(value(q, i)));
      EXPECT_EQ(s[q * n + i], float(value(q, r.rank * n + i)));
    }
  if (r.rank != root) return;
  for (std::size_t i = 0; i < n; ++i) {
    double most = -2;
    for (int q = 0; q < r.size; ++q) most = std::max(most, value(q, i));
    EXPECT_EQ(m[i], float(most));
  }
}

// Section "Point To Point Communication Functions", ring by a group.
void check_ring(Rank& r, std::size_t n) {
  const int next = (r.rank + 1) % r.size, before = (r.rank + r.size - 1) % r.size;
  const Values<float> in(input<float>(r.rank, n));
  const Values<float> out(n);
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclSend(in, n, ncclFloat32, next, r.comm, r.stream), ncclSuccess);
  EXPECT_EQ(ncclRecv(out, n, ncclFloat32, before, r.comm, r.stream), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  r.sync();
  EXPECT_EQ(out.get(), input<float>(before, n));
}

TEST_F(NcclTest, EveryOperationUnderHostileSchedules) {
  for (int n = 2; n <= 4; ++n)
    for (unsigned seed = 1; seed <= 20; ++seed) {
      emu::set_schedule(emu::Schedule::random, seed);
      all_well(n, [&](Rank& r) {
        check_sums<float>(r, ncclFloat32, 1e-7, 33);
        check_moves(r, 17);
        check_ring(r, 20);
        check_sums<__nv_bfloat16>(r, ncclBfloat16, 1.0 / 256, 70);
        check_sums<__half>(r, ncclFloat16, 1.0 / 2048, 5);
        check_sums<double>(r, ncclFloat64, 1e-15, 3);
      });
      ASSERT_FALSE(HasFailure()) << n << " ranks, seed " << seed;
    }
}

// Section "ncclRedOp_t" and "ncclDataType_t": whole numbers wrap, and every built-in reduction.
TEST_F(NcclTest, WholeNumbersAreExact) {
  all_well(3, [](Rank& r) {
    const Values<std::int32_t> in({1 << 30, -7 * (r.rank + 1), r.rank + 2});
    const std::vector<std::pair<ncclRedOp_t, std::vector<std::int32_t>>> wanted = {
        {ncclSum, {-(1 << 30), -42, 9}},  // 3 * 2^30 modulo 2^32
        {ncclProd, {0, -2058, 24}},
        {ncclMax, {1 << 30, -7, 4}},
        {ncclMin, {1 << 30, -21, 2}}};
    for (const auto& [op, want] : wanted) {
      const Values<std::int32_t> out(3);
      EXPECT_EQ(ncclAllReduce(in, out, 3, ncclInt32, op, r.comm, r.stream), ncclSuccess);
      r.sync();
      EXPECT_EQ(out.get(), want) << op;
    }
  });
}

// No section promises an order of the ranks in a sum. All ranks get the same bits, though: code
// that needs the bits of a certain order must not use ncclSum.
TEST_F(NcclTest, TheOrderOfASumIsNoPromise) {
  std::vector<std::vector<std::set<float>>> seen(3, std::vector<std::set<float>>(1));
  std::vector<std::vector<float>> results(3);
  all_well(3, [&](Rank& r) {
    const float inputs[] = {1e8f, 1.0f, -1e8f};
    const Values<float> in(std::vector<float>(1, inputs[r.rank]));
    const Values<float> out(1);
    for (int k = 0; k < 20; ++k) {
      EXPECT_EQ(ncclAllReduce(in, out, 1, ncclFloat32, ncclSum, r.comm, r.stream), ncclSuccess);
      r.sync();
      results[r.rank].push_back(out.get()[0]);
    }
  });
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
  EXPECT_EQ(std::set<float>(results[0].begin(), results[0].end()), (std::set<float>{0.0f, 1.0f}));
}

// "In-place operation will happen if" of each function's section.
TEST_F(NcclTest, InPlaceWhereTheManualAllowsIt) {
  all_well(2, [](Rank& r) {
    const std::size_t n = 8;
    const Values<float> all(input<float>(r.rank, 2 * n));
    const Values<float> gather(2 * n);
    float* own = gather + r.rank * n;
    EXPECT_EQ(cudaMemcpyAsync(own, all, n * 4, cudaMemcpyDeviceToDevice, r.stream), cudaSuccess);
    EXPECT_EQ(ncclAllGather(own, gather, n, ncclFloat32, r.comm, r.stream), ncclSuccess);
    EXPECT_EQ(ncclReduceScatter(all, all + r.rank * n, n, ncclFloat32, ncclSum, r.comm, r.stream),
              ncclSuccess);
    r.sync();
    const auto g = gather.get(), s = all.get();
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_EQ(g[i], float(value(0, i)));
      EXPECT_EQ(g[n + i], float(value(1, i)));
      EXPECT_NEAR(s[r.rank * n + i], sum_of<float>(2, r.rank * n + i), 1e-6);
    }
    EXPECT_EQ(ncclAllReduce(all, all + 1, n, ncclFloat32, ncclSum, r.comm, r.stream),
              ncclInvalidArgument);
    EXPECT_THAT(ncclGetLastError(r.comm), HasSubstr("overlap"));
    EXPECT_EQ(ncclAllGather(gather, gather + 1, n, ncclFloat32, r.comm, r.stream),
              ncclInvalidArgument);
    EXPECT_EQ(ncclAlltoAll(gather, gather, n, ncclFloat32, r.comm, r.stream), ncclInvalidArgument);
  });
}

TEST_F(NcclTest, WrongArgumentsAreNamed) {
  all_well(2, [](Rank& r) {
    const Values<float> d(8);
    std::vector<float> host(8);
    auto wrong = [&](ncclResult_t result, const char* words) {
      EXPECT_EQ(result, ncclInvalidArgument);
      EXPECT_THAT(ncclGetLastError(r.comm), HasSubstr(words));
    };
    wrong(ncclAllReduce(host.data(), d, 8, ncclFloat32, ncclSum, r.comm, r.stream), "send buffer");
    wrong(ncclBroadcast(d, d, 8, ncclFloat32, 2, r.comm, r.stream), "its root is 2 of 2 ranks");
    wrong(ncclSend(d, 8, ncclFloat32, -1, r.comm, r.stream), "its peer is -1");
    wrong(ncclAllReduce(d, d, 8, ncclFloat32, ncclAvg, r.comm, r.stream), "not emulated");
    wrong(ncclRecv(d, 9, ncclFloat32, 0, r.comm, r.stream), "receive buffer");
    EXPECT_EQ(cudaSetDevice(1 - r.rank), cudaSuccess);
    cudaStream_t foreign{};
    EXPECT_EQ(cudaStreamCreateWithFlags(&foreign, cudaStreamNonBlocking), cudaSuccess);
    wrong(ncclAllReduce(d, d, 8, ncclFloat32, ncclSum, r.comm, foreign), "its stream is of device");
    {
      const Values<float> there(8);
      wrong(ncclAllReduce(there, there, 8, ncclFloat32, ncclSum, r.comm, r.stream),
            "is memory of device");
    }
    EXPECT_EQ(cudaStreamDestroy(foreign), cudaSuccess);
    EXPECT_EQ(cudaSetDevice(r.rank), cudaSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  });
  EXPECT_THAT(emu::reports(), Contains(HasSubstr("its stream is of device")));
}

// Section "Thread Safety" and "Operation Semantics": all ranks call the same, in the same order.
TEST_F(NcclTest, DifferentCallsAreReportedWithBothSides) {
  const auto meets = [](const std::function<void(Rank&, const Values<float>&)>& first,
                        const std::function<void(Rank&, const Values<float>&)>& second) {
    emu::reset();
    return on_ranks(2, [&](Rank& r) {
      const Values<float> d(64);
      (r.rank == 0 ? first : second)(r, d);
      r.sync();
    });
  };
  auto reduce = [](std::size_t n, ncclDataType_t t, ncclRedOp_t op) {
    return [=](Rank& r, const Values<float>& d) {
      EXPECT_EQ(ncclAllReduce(d, d, n, t, op, r.comm, r.stream), ncclSuccess);
    };
  };
  auto cast = [](int root) {
    return [=](Rank& r, const Values<float>& d) {
      EXPECT_EQ(ncclBroadcast(d, d, 4, ncclFloat32, root, r.comm, r.stream), ncclSuccess);
    };
  };
  const auto plain = reduce(8, ncclFloat32, ncclSum);
  EXPECT_THAT(meets(plain, reduce(9, ncclFloat32, ncclSum)),
              Contains(AllOf(HasSubstr("rank 0 calls ncclAllReduce of 8 x float32, sum"),
                             HasSubstr("rank 1 calls ncclAllReduce of 9 x float32, sum"))));
  EXPECT_THAT(meets(plain, reduce(8, ncclInt32, ncclSum)), Contains(HasSubstr("8 x int32, sum")));
  EXPECT_THAT(meets(plain, reduce(8, ncclFloat32, ncclMax)), Contains(HasSubstr("float32, max")));
  EXPECT_THAT(meets(plain, cast(0)), Contains(HasSubstr("ncclBroadcast of 4 x float32, root 0")));
  EXPECT_THAT(meets(cast(1), cast(0)),
              Contains(AllOf(HasSubstr("number 1"), HasSubstr("root 0"), HasSubstr("root 1"))));
  // Swapped order.
  EXPECT_THAT(meets([&](Rank& r, const auto& d) { plain(r, d), cast(0)(r, d); },
                    [&](Rank& r, const auto& d) { cast(0)(r, d), plain(r, d); }),
              Contains(HasSubstr("collective mismatch at number 1")));
  // One call skipped: the next one meets another.
  EXPECT_THAT(meets([&](Rank& r, const auto& d) { plain(r, d), cast(0)(r, d); }, cast(0)),
              Contains(HasSubstr("collective mismatch at number 1")));
  // The last one skipped: nobody comes.
  EXPECT_THAT(meets([&](Rank& r, const auto& d) { plain(r, d), cast(0)(r, d); }, plain),
              Contains(AllOf(HasSubstr("deadlock"), HasSubstr("ncclBroadcast of 4 x float32"),
                             HasSubstr("number 2 (rank 0 of 2)"))));
}

TEST_F(NcclTest, MessagesMustAgreeInLengthAndType) {
  auto thrown = on_ranks(2, [](Rank& r) {
    const Values<float> d(8);
    EXPECT_EQ(r.rank == 0 ? ncclSend(d, 8, ncclFloat32, 1, r.comm, r.stream)
                          : ncclRecv(d, 7, ncclFloat32, 0, r.comm, r.stream),
              ncclSuccess);
    r.sync();
  });
  EXPECT_THAT(thrown, Contains(AllOf(HasSubstr("rank 0 calls ncclSend of 8 x float32 to rank 1"),
                                     HasSubstr("rank 1 calls ncclRecv of 7 x float32"))));
}

// Section "Group Calls", "sendrecv": without a group each send waits for its receive.
TEST_F(NcclTest, UngroupedRingIsADeadlock) {
  auto thrown = on_ranks(4, [](Rank& r) {
    const Values<float> d(8), e(8);
    EXPECT_EQ(ncclSend(d, 8, ncclFloat32, (r.rank + 1) % 4, r.comm, r.stream), ncclSuccess);
    EXPECT_EQ(ncclRecv(e, 8, ncclFloat32, (r.rank + 3) % 4, r.comm, r.stream), ncclSuccess);
    r.sync();
  });
  EXPECT_THAT(thrown, Contains(AllOf(HasSubstr("deadlock"), HasSubstr("ncclSend of 8 x float32"),
                                     HasSubstr("to rank 3"))));
}

// Section "Using NCCL with CUDA Graphs".
TEST_F(NcclTest, GraphsReplayCollectivesAndMessages) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    emu::set_schedule(emu::Schedule::random, seed);
    all_well(2, [](Rank& r) {
      const Values<float> x(std::vector<float>(5, float(r.rank + 1)));
      const Values<float> from(5);
      EXPECT_EQ(cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
      EXPECT_EQ(ncclAllReduce(x, x, 5, ncclFloat32, ncclSum, r.comm, r.stream), ncclSuccess);
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);
      EXPECT_EQ(ncclSend(x, 5, ncclFloat32, 1 - r.rank, r.comm, r.stream), ncclSuccess);
      EXPECT_EQ(ncclRecv(from, 5, ncclFloat32, 1 - r.rank, r.comm, r.stream), ncclSuccess);
      EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
      cudaGraph_t graph{};
      cudaGraphExec_t exec{};
      EXPECT_EQ(cudaStreamEndCapture(r.stream, &graph), cudaSuccess);
      EXPECT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
      EXPECT_EQ(cudaGraphLaunch(exec, r.stream), cudaSuccess);
      EXPECT_EQ(cudaGraphLaunch(exec, r.stream), cudaSuccess);
      EXPECT_EQ(ncclAllReduce(x, x, 5, ncclFloat32, ncclMax, r.comm, r.stream), ncclSuccess);
      EXPECT_EQ(cudaGraphLaunch(exec, r.stream), cudaSuccess);
      r.sync();
      // 1 + 2 = 3, then doubled by each further launch.
      EXPECT_EQ(x.get(), std::vector<float>(5, 12.0f));
      EXPECT_EQ(from.get(), std::vector<float>(5, 12.0f));
      EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
      EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    });
  }
}

// Section "Using multiple streams" and "ncclAllReduce" of the FAQ: calls of one communicator need
// one order.
TEST_F(NcclTest, TwoStreamsOfOneCommunicatorNeedAnEvent) {
  const auto use = [](bool ordered) {
    return on_ranks(2, [ordered](Rank& r) {
      const Values<float> x(std::vector<float>(4, 1.0f)), y(std::vector<float>(4, 2.0f));
      cudaStream_t other{};
      cudaEvent_t event{};
      EXPECT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
      EXPECT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
      EXPECT_EQ(ncclAllReduce(x, x, 4, ncclFloat32, ncclSum, r.comm, r.stream), ncclSuccess);
      EXPECT_EQ(cudaEventRecord(event, r.stream), cudaSuccess);
      if (ordered) {
        EXPECT_EQ(cudaStreamWaitEvent(other, event, 0), cudaSuccess);
      }
      EXPECT_EQ(ncclAllReduce(y, y, 4, ncclFloat32, ncclSum, r.comm, other), ncclSuccess);
      EXPECT_EQ(cudaStreamSynchronize(other), cudaSuccess);
      r.sync();
      EXPECT_EQ(x.get()[3], 2.0f);
      EXPECT_EQ(y.get()[3], 4.0f);
      EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
      EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
    });
  };
  EXPECT_THAT(use(true), ::testing::Each(""));
  EXPECT_THAT(use(false), Contains(HasSubstr("used from two streams needs an event")));
}
}  // namespace
}  // namespace cohort::test
