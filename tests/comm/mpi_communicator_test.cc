// SPDX-License-Identifier: Apache-2.0
// The suite over the ranks that mpirun has started. The first argument is the kind of groups;
// "hosts": automatic, where COHORT_HOST names each rank's host.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/comm/communicator_suite.h"

namespace cohort {
namespace {

std::unique_ptr<World> world;
std::string kind;

class MpiCommunicatorTest : public ::testing::TestWithParam<size_t> {};

TEST_P(MpiCommunicatorTest, Check) {
  communicator_checks()[GetParam()].run(*world);
  ASSERT_TRUE(world->exchange("", std::chrono::seconds(60)).ok());
}

INSTANTIATE_TEST_SUITE_P(Every, MpiCommunicatorTest,
                         ::testing::Range(size_t(0), communicator_checks().size()),
                         [](const auto& info) { return communicator_checks()[info.param].name; });

CommunicatorKind parse_kind(const std::string& text) {
  if (text == "shm") return CommunicatorKind::shm;
  if (text == "mpi") return CommunicatorKind::mpi;
  return CommunicatorKind::automatic;
}

TEST(MpiWorld, GroupsAreOfTheKindAskedFor) {
  if (world->size() < 2) return;
  std::vector<int> members;
  for (int r = 0; r < world->size(); r++) members.push_back(r);
  const auto group = world->group(members, "tp").value();
  const std::string expected = kind == "hosts" ? "hierarchical" : kind == "mpi" ? "mpi" : "shm";
  EXPECT_EQ(group->name().substr(0, group->name().find(' ')), expected);
}

TEST(MpiWorld, RanksOfDifferentHostsShareNoMemory) {
  if (kind != "hosts") return;
  const char* host = std::getenv("COHORT_HOST");
  ASSERT_NE(host, nullptr);
  EXPECT_EQ(world->host(), host);
  if (world->rank() != 0 && world->rank() != 3) return;
  const auto pair = world->group({0, 3}, "pp").value();
  EXPECT_EQ(pair->name(), "mpi pp group {0, 3}");
  EXPECT_FALSE(pair->shares_host(1 - pair->rank()));
}

TEST(MpiWorld, E01_EveryRankNamesTheOneThatDidNotCome) {
  if (world->size() < 2) return;
  const int absent = world->size() - 1;
  if (world->rank() != absent) {
    const Status status = world->exchange("", std::chrono::milliseconds(300)).status();
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find(concat("rank ", absent, " did not come")), std::string::npos)
        << status.to_string();
  }
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_TRUE(world->exchange("", std::chrono::seconds(60)).ok());
}

TEST(MpiWorld, ASecondWorldIsRefused) {
  EXPECT_EQ(make_mpi_world(CommunicatorKind::automatic).status().code(), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  using namespace cohort;
  kind = argc > 1 ? argv[1] : "automatic";
  const char* host = std::getenv("COHORT_HOST");
  Result<std::unique_ptr<World>> made = make_mpi_world(parse_kind(kind), host ? host : "");
  if (!made.ok()) {
    std::fprintf(stderr, "%s\n", made.status().to_string().c_str());
    return 1;
  }
  world = std::move(*made);
  if (world->rank() != 0) GTEST_FLAG_SET(brief, true);  // failures only
  const int failed = RUN_ALL_TESTS();
  world.reset();
  // Groups that failed on purpose have kept the world from finalising MPI.
  int finalised = 0;
  MPI_Finalized(&finalised);
  if (!finalised) MPI_Finalize();
  return failed;
}
