// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/tree_sum.h"
#include "tests/comm/reduction_case.h"
#include "tests/support/faulty_communicator.h"
#include "tests/support/local_ranks.h"

namespace cohort {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

TEST(LocalWorld, E01ExchangeNamesWhoDidNotCome) {
  run_local_ranks(3, [](World& world) {
    if (world.rank() == 1) return;
    const Status status = world.exchange("x", milliseconds(100)).status();
    EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
    EXPECT_THAT(status.message(), HasSubstr("rank 1"));
  });
}

TEST(LocalWorld, APeerThatHasLeftIsNoticed) {
  run_local_ranks(2, [](World& world) {
    auto comm = world.group({0, 1}, "tp").value();
    ASSERT_TRUE(comm->barrier().ok());
    if (world.rank() == 1) return;
    const Status status = comm->barrier();
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_THAT(status.message(), HasSubstr("rank 1 on host localhost has left"));
  });
}

TEST(SoloCommunicator, AbortSticks) {
  auto comm = make_solo_communicator("tp");
  EXPECT_TRUE(comm->barrier().ok());
  comm->abort(cancelled("over"));
  EXPECT_EQ(comm->barrier(), cancelled("over"));
  EXPECT_EQ(comm->broadcast(nullptr, 0, 0), cancelled("over"));
  char byte = 0;
  EXPECT_EQ(comm->send(&byte, 1, 0).code(), Code::kInvalidArgument);
}

// The bits prove an order only if another order gives others.
TEST(ReductionCase, OrderDecidesTheBits) {
  const ReductionCase test{.units = 7, .owned = {{0, 7}}, .count = 1000, .seed = 5};
  std::vector<float> left_to_right = test.unit(0);
  for (int u = 1; u < 7; u++)
    for (size_t i = 0; i < left_to_right.size(); i++) left_to_right[i] += test.unit(u)[i];
  EXPECT_NE(left_to_right, test.sum());
}

TEST(TreeSum, LeavesThePiecesAsTheyAre) {
  const ReductionCase test{.units = 5, .owned = {{0, 1}, {1, 5}}, .count = 2500, .seed = 3};
  const TreePlan plan(test.units, test.owned);
  std::vector<float> memory = test.pieces(plan, 0);
  const std::vector<float> second = test.pieces(plan, 1);
  memory.insert(memory.end(), second.begin(), second.end());
  const std::vector<float> before = memory;
  std::vector<const float*> pieces;
  for (int p = 0; p < plan.total_pieces(); p++) pieces.push_back(memory.data() + p * test.count);
  std::vector<float> out(size_t(test.count));
  TreeSum().run(plan, pieces, out.data(), test.count);
  EXPECT_EQ(out, test.sum());
  EXPECT_EQ(memory, before);
}

TEST(TreeSum, NoPiecesGiveZeros) {
  std::vector<float> out(3, 1.0f);
  TreeSum().run(TreePlan(0, {{0, 0}}), {}, out.data(), 3);
  EXPECT_EQ(out, std::vector<float>(3, 0.0f));
}

TEST(FaultyCommunicator, FailsDelaysAndDropsTheCallItIsTold) {
  run_local_ranks(2, [](World& world) {
    Faults faults;
    if (world.rank() == 1) {
      faults.delay_call = 1;
      faults.drop_call = 2;
      faults.fail_call = 3;
    }
    FaultyCommunicator comm(world.group({0, 1}, "tp").value(), faults);
    comm.set_timeout(milliseconds(200));
    EXPECT_TRUE(comm.barrier().ok());
    const TimePoint start = std::chrono::steady_clock::now();
    EXPECT_TRUE(comm.barrier().ok());
    const Duration waited = std::chrono::steady_clock::now() - start;
    EXPECT_GE(waited, world.rank() == 1 ? faults.delay : Duration(0));
    EXPECT_EQ(comm.barrier().code(), Code::kDeadlineExceeded);
    EXPECT_EQ(comm.barrier().code(),
              world.rank() == 1 ? Code::kUnavailable : Code::kDeadlineExceeded);
    EXPECT_EQ(comm.calls(), 4);
    EXPECT_TRUE(world.exchange("", std::chrono::seconds(20)).ok());
  });
}

}  // namespace
}  // namespace cohort
