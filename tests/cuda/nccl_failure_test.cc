// SPDX-License-Identifier: Apache-2.0
// Groups of GPUs that go wrong: peers that do not come, errors that NCCL finds, aborts, memory.
#include <nccl.h>

#include <thread>

#include "comm/nccl_communicator.h"
#include "tests/cuda/nccl_fixture.h"

namespace cohort {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

using NcclFailureTest = NcclTest;

TEST_F(NcclFailureTest, APeerThatDoesNotComeEndsTheStart) {
  run_ranks(2, [](NcclRank& rank) {
    if (rank.meeting->rank() == 1) {
      std::vector<char> id(4096);
      require(rank.meeting->broadcast(id.data(), sizeof(int32_t) + 128, 0));  // and no more
      require(rank.meeting->barrier());
      return;
    }
    const auto group = make_nccl_communicator(rank.gpu, *rank.meeting, "tp",
                                              {.start_timeout = milliseconds(50)}, 0);
    EXPECT_EQ(group.status().code(), Code::kDeadlineExceeded);
    EXPECT_THAT(group.status().message(),
                AllOf(HasSubstr("nccl tp group, rank 0 of 2"), HasSubstr("ncclCommInitRankConfig"),
                      HasSubstr("0.05 s")));
    require(rank.meeting->barrier());
  });
}

TEST_F(NcclFailureTest, AStartThatFailsIsNamed) {
  run_ranks(2, [](NcclRank& rank) {
    if (rank.meeting->rank() == 0) emu::fail_next("ncclCommInitRank", ncclSystemError);
    require(rank.meeting->barrier());
    const auto group = make_nccl_communicator(rank.gpu, *rank.meeting, "tp",
                                              {.start_timeout = milliseconds(100)}, 0);
    EXPECT_FALSE(group.ok());
    EXPECT_THAT(group.status().message(), HasSubstr("ncclCommInitRankConfig"));
    require(rank.meeting->barrier());
  });
}

TEST_F(NcclFailureTest, AVerbThatFailsNamesGroupVerbNumberAndSize) {
  run_ranks(2, [](NcclRank& rank) {
    auto group = rank.group();
    const Buffer data = rank.on_device<float>({1, 2, 3});
    require(group->add_up(data.data(), data.data(), 3, DType::f32));
    rank.on_host<float>(data);
    require(rank.meeting->barrier());
    if (group->rank() == 0) {
      emu::fail_next("ncclAllReduce", ncclSystemError);
      const Status failed = group->add_up(data.data(), data.data(), 3, DType::f32);
      EXPECT_EQ(failed.code(), Code::kUnavailable);
      EXPECT_THAT(failed.message(), AllOf(HasSubstr("nccl tp group, rank 0 of 2"),
                                          HasSubstr("add_up 2 ("), HasSubstr("12 bytes")));
    }
    require(rank.meeting->barrier());
  });
}

// NCCL takes no call while it is busy with another: a group that has lost one to the deadline is of
// no more use, and says so.
TEST_F(NcclFailureTest, AVerbThatNcclDoesNotTakeInTimeEndsTheGroup) {
  run_ranks(2, [](NcclRank& rank) {
    auto group = rank.group();
    const Buffer data = rank.on_device<float>({1});
    group->set_timeout(Duration(0));
    const Status late = group->add_up(data.data(), data.data(), 1, DType::f32);
    EXPECT_EQ(late.code(), Code::kDeadlineExceeded);
    EXPECT_THAT(late.message(), HasSubstr("add_up 1 ("));
    group->set_timeout(seconds(10));
    EXPECT_EQ(group->barrier().code(), Code::kFailedPrecondition);
    group->abort(late);
    EXPECT_EQ(group->barrier().code(), Code::kDeadlineExceeded);
  });
}

TEST_F(NcclFailureTest, AbortEndsWhatHangsAndWhatComesLater) {
  run_ranks(2, [](NcclRank& rank) {
    emu::set_host_threads(0);
    auto group = rank.group();
    const Buffer data = rank.on_device<float>({1});
    if (group->rank() == 0) {
      require(group->add_up(data.data(), data.data(), 1, DType::f32));
      CudaEvent event(*rank.gpu);
      event.record(rank.gpu->compute());
      const Status why = unavailable("rank 1 is gone");
      std::thread watcher([&] {
        std::this_thread::sleep_for(milliseconds(30));
        group->abort(why);
        group->abort(cancelled("a second reason"));
      });
      const Status stopped = event.wait(seconds(60), [&] { return group->status(); });
      watcher.join();
      EXPECT_EQ(stopped.code(), Code::kUnavailable);
      EXPECT_THAT(stopped.message(), HasSubstr("rank 1 is gone"));
      for (const Status& later : {group->barrier(), group->broadcast(data.data(), 4, 0),
                                  group->status(), group->send(data.data(), 4, 1)}) {
        EXPECT_EQ(later.code(), Code::kUnavailable);
        EXPECT_THAT(later.message(), HasSubstr("rank 1 is gone"));
      }
    }
    require(rank.meeting->barrier());
    group->abort(cancelled("the test is over"));
  });
}

TEST_F(NcclFailureTest, APeerThatAbortsShowsInTheStatusWithTheNameOfTheGroup) {
  run_ranks(2, [](NcclRank& rank) {
    emu::set_host_threads(0);
    auto group = rank.group();
    const Buffer data = rank.on_device<float>({1});
    if (group->rank() == 1) group->abort(cancelled("this rank ends"));
    require(rank.meeting->barrier());
    if (group->rank() == 0) {
      Status failed = group->add_up(data.data(), data.data(), 1, DType::f32);
      CudaEvent event(*rank.gpu);
      event.record(rank.gpu->compute());
      if (failed.ok()) failed = event.wait(seconds(60), [&] { return group->status(); });
      EXPECT_EQ(failed.code(), Code::kUnavailable);
      EXPECT_THAT(failed.message(),
                  AllOf(HasSubstr("nccl tp group, rank 0 of 2"), HasSubstr("add_up 1 (4 bytes)")));
      group->abort(failed);
    }
    require(rank.meeting->barrier());
  });
}

TEST_F(NcclFailureTest, TheErrorOfADeviceIsAnAnswerOfTheVerb) {
  run_ranks(2, [](NcclRank& rank) {
    emu::set_host_threads(0);
    auto group = rank.group();
    const Buffer data = rank.on_device<float>({1});
    require(rank.meeting->barrier());
    if (group->rank() == 1) {
      emu::fail_next("cudaStreamWaitEvent", cudaErrorLaunchFailure);
      const Status failed = group->add_up(data.data(), data.data(), 1, DType::f32);
      EXPECT_THAT(failed.message(), AllOf(HasSubstr("nccl tp group, rank 1 of 2"),
                                          HasSubstr("cudaErrorLaunchFailure")));
    }
    require(rank.meeting->barrier());
    group->abort(cancelled("the test is over"));
  });
}

TEST_F(NcclFailureTest, MemoryIsZeroedAndPlainWhereItCannotBeRegistered) {
  for (const char* call : {"", "ncclMemAlloc", "ncclCommWindowRegister"})
    run_ranks(2, [&](NcclRank& rank) {
      auto group = rank.group();
      for (int r = 0; r < 2; r++)  // one fault for each rank
        if (*call != 0 && group->rank() == 0) emu::fail_next(call, ncclUnhandledCudaError);
      require(rank.meeting->barrier());
      const Buffer data = group->allocate(*rank.gpu, 5000);
      EXPECT_EQ(rank.on_host<char>(data), std::vector<char>(5000));
      EXPECT_EQ(group->allocate(*rank.gpu, 0).size(), 0u);
    });
}

TEST_F(NcclFailureTest, SaysHowMuchMemoryIsMissing) {
  emu::set_device_memory(size_t(8) << 20);
  run_ranks(2, [](NcclRank& rank) {
    auto group = rank.group();
    try {
      group->allocate(*rank.gpu, size_t(64) << 20);
      ADD_FAILURE() << "more memory than there is";
    } catch (const OutOfMemory& error) {
      EXPECT_THAT(error.what(), HasSubstr("64.0 MiB asked for"));
    }
    require(group->barrier());
    // What an ordered all_reduce gathers is taken at the start.
    const auto ordered =
        make_nccl_communicator(rank.gpu, *rank.meeting, "tp", {.ordered = true}, 16 << 20);
    EXPECT_EQ(ordered.status().code(), Code::kResourceExhausted);
    EXPECT_THAT(ordered.status().message(), HasSubstr("64.0 MiB asked for"));
  });
}

TEST_F(NcclFailureTest, AGroupOfOneHasNoPeersAndCanBeAborted) {
  run_ranks(1, [](NcclRank& rank) {
    auto group = rank.group({.ordered = true}, 10);
    EXPECT_TRUE(group->ordered());
    const Buffer data = rank.on_device<float>({7});
    EXPECT_EQ(group->send(data.data(), 4, 0).code(), Code::kInvalidArgument);
    EXPECT_EQ(group->recv(data.data(), 4, 0).code(), Code::kInvalidArgument);
    EXPECT_TRUE(group->barrier().ok());
    group->abort(cancelled("over"));
    EXPECT_EQ(group->barrier(), cancelled("over"));
    EXPECT_EQ(group->add_up(data.data(), data.data(), 1, DType::f32), cancelled("over"));
  });
}

}  // namespace
}  // namespace cohort
