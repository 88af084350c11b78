// SPDX-License-Identifier: Apache-2.0
// What only processes can show: a member that is killed, stopped or leaves, and what stays behind.
#include "comm/shm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "tests/support/forked_ranks.h"

namespace cohort {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

std::unique_ptr<Communicator> group(World& world) {
  std::vector<int> members;
  for (int r = 0; r < world.size(); r++) members.push_back(r);
  auto comm = world.group(members, "tp");
  if (!comm.ok()) throw std::runtime_error(comm.status().to_string());
  return std::move(*comm);
}

// The last rank kills itself after `meetings` barriers, the others must notice within 2 s: in
// whatever verb they are.
void killed_rank(World& world, const std::function<Status(Communicator&)>& verb) {
  auto comm = group(world);
  const int victim = world.size() - 1;
  for (int i = 0; i < 3; i++) ASSERT_TRUE(comm->barrier().ok());
  if (world.rank() == victim) {
    std::this_thread::sleep_for(milliseconds(100));  // the others wait by now
    ::raise(SIGKILL);
  }
  const TimePoint start = std::chrono::steady_clock::now();
  const Status status = verb(*comm);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  EXPECT_EQ(status.code(), Code::kUnavailable) << status.to_string();
  EXPECT_THAT(status.message(),
              HasSubstr("rank " + std::to_string(victim) + " on host testhost has died"));
}

void expect_survivors_succeed(int ranks, const std::function<Status(Communicator&)>& verb) {
  ForkedRanks forked(ranks, [&](World& world) { killed_rank(world, verb); });
  for (int r = 0; r < ranks - 1; r++) EXPECT_TRUE(forked.succeeded(r)) << "rank " << r;
  EXPECT_FALSE(forked.succeeded(ranks - 1));
}

TEST(Shm, E03AKilledRankIsNamedByThoseInACollective) {
  for (int ranks : {2, 3})
    expect_survivors_succeed(ranks, [](Communicator& comm) { return comm.barrier(); });
}

TEST(Shm, E03AKilledRankIsNamedByAReceiver) {
  expect_survivors_succeed(2, [](Communicator& comm) {
    char byte;
    return comm.recv(&byte, 1, comm.size() - 1);
  });
}

TEST(Shm, E03AKilledRankIsNamedByASenderThatWaitsForRoom) {
  expect_survivors_succeed(2, [](Communicator& comm) {
    const std::vector<char> large(8 << 20);
    return comm.send(large.data(), int64_t(large.size()), comm.size() - 1);
  });
}

TEST(Shm, E03AKilledRankIsNamedWithinALargeReduction) {
  expect_survivors_succeed(2, [](Communicator& comm) {
    const TreePlan plan(2, {{0, 1}, {1, 2}});
    std::vector<float> pieces(4 << 20), out(pieces.size());
    return comm.all_reduce(plan, pieces.data(), out.data(), int64_t(out.size()));
  });
}

TEST(Shm, E04AStoppedRankIsNamedAfterTheTimeout) {
  ForkedRanks forked(2, [](World& world) {
    auto comm = group(world);
    comm->set_timeout(milliseconds(300));
    ASSERT_TRUE(comm->barrier().ok());
    if (world.rank() == 1) ::raise(SIGSTOP);
    const Status status = comm->barrier();
    EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("rank 1 on host testhost"));
  });
  EXPECT_TRUE(forked.succeeded(0));
}

TEST(Shm, APeerThatHasLeftIsNoticed) {
  run_forked_ranks(2, [](World& world) {
    auto comm = group(world);
    int value = 5;
    if (world.rank() == 1) {
      ASSERT_TRUE(comm->send(&value, sizeof value, 0).ok());
      comm.reset();
    } else {
      std::this_thread::sleep_for(milliseconds(50));
      int got = 0;
      ASSERT_TRUE(comm->recv(&got, sizeof got, 1).ok()) << "sent before it left";
      EXPECT_EQ(got, value);
      const Status status = comm->barrier();
      EXPECT_EQ(status.code(), Code::kUnavailable);
      EXPECT_THAT(status.message(), HasSubstr("rank 1 on host testhost has left the group"));
    }
    EXPECT_TRUE(world.exchange("", std::chrono::seconds(20)).ok());
  });
}

TEST(Shm, AFailureIsPassedOnToPeersThatWait) {
  run_forked_ranks(2, [](World& world) {
    auto comm = group(world);
    if (world.rank() == 0) {
      comm->abort(cancelled("watchdog: no progress in layer 3"));
    } else {
      const Status status = comm->barrier();
      EXPECT_EQ(status.code(), Code::kUnavailable);
      EXPECT_THAT(status.message(), HasSubstr("rank 0 on host testhost gave up"));
      EXPECT_THAT(status.message(), HasSubstr("no progress in layer 3"));
    }
    EXPECT_TRUE(world.exchange("", std::chrono::seconds(20)).ok());
  });
}

TEST(Shm, NothingIsLeftBehindByKilledRanks) {
  // Other programs use /dev/shm too, so look at what a member has mapped: memory without a name
  // that could stay.
  ForkedRanks forked(3, [](World& world) {
    auto comm = group(world);
    ASSERT_TRUE(comm->barrier().ok());
    std::ifstream maps("/proc/self/maps");
    std::stringstream text;
    text << maps.rdbuf();
    EXPECT_THAT(text.str(), HasSubstr("/memfd:cohort group (deleted)"));
    EXPECT_THAT(text.str(), ::testing::Not(HasSubstr("/dev/shm")));
    ASSERT_FALSE(::testing::Test::HasFailure());
    ::raise(SIGKILL);
  });
  for (int r = 0; r < 3; r++) EXPECT_FALSE(forked.succeeded(r));
}

TEST(Shm, MembersThatCannotShareMemoryAllFailTheSameWay) {
  run_forked_ranks(2, [](World& world) {
    const GroupInfo info{.rank = world.rank(),
                         .world_ranks = {0, 1},
                         .hosts = {"a", "b"},
                         .name = "shm tp group {0, 1}"};
    // Rank 1 hears of a process whose memory it cannot open.
    const auto exchange = [&](const std::string& text) -> Result<std::vector<std::string>> {
      auto texts = world.exchange(text, std::chrono::seconds(20));
      if (texts.ok() && world.rank() == 1 && !(*texts)[0].empty()) (*texts)[0] = "1 12345 1";
      return texts;
    };
    const Status status = make_shm_communicator(info, exchange).status();
    EXPECT_EQ(status.code(), Code::kUnavailable) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("rank 1 on host b"));
  });
}

TEST(Shm, HostIdentityIsThatOfTheHost) {
  EXPECT_EQ(host_identity(), host_identity());
  EXPECT_THAT(host_identity(), HasSubstr("pid:["));
}

}  // namespace
}  // namespace cohort
