// SPDX-License-Identifier: Apache-2.0
// Groups over several hosts: who gathers what, what crosses between hosts, and what falls back.
#include "comm/hierarchical.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/comm/reduction_case.h"
#include "tests/comm/suite_support.h"
#include "tests/support/local_ranks.h"

namespace cohort {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(HostMap, KnowsWhoSharesAHost) {
  const HostMap map = HostMap::make({"a", "a", "b", "c", "c", "c"}).value();
  EXPECT_TRUE(map.mixed());
  EXPECT_EQ(map.hosts(), 3);
  EXPECT_EQ(map.rails(), 1);
  EXPECT_THAT(map.members(2), ElementsAre(3, 4, 5));
  EXPECT_THAT(map.rail(0), ElementsAre(0, 2, 3));
  for (int r : {0, 1}) EXPECT_EQ(map.host_of(r), 0);
  EXPECT_EQ(map.host_of(2), 1);
  for (int r : {3, 4, 5}) EXPECT_EQ(map.host_of(r), 2);
  EXPECT_EQ(HostMap::make({"a", "a", "b", "b"}).value().rails(), 2);
}

TEST(HostMap, IsNotMadeWhereMembersOfAHostAreNotNeighbours) {
  EXPECT_FALSE(HostMap::make({"a", "b", "a"}).has_value());
  EXPECT_FALSE(HostMap::make({"a", "a"}).value().mixed());
  EXPECT_FALSE(HostMap::make({"a", "b"}).value().mixed());
}

// A host's pieces are the maximal subtrees of its units, with the bits of the tree.
TEST(HostReduction, HasTheBitsOfTheTree) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 200; trial++) {
    const std::vector<int> of_hosts[] = {{2, 2}, {3, 1}, {1, 3}, {2, 4, 1}, {1, 1, 6}};
    std::vector<std::string> names;
    for (int h = 0; int n : of_hosts[trial % 5]) {
      names.insert(names.end(), size_t(n), std::to_string(h++));
    }
    const HostMap hosts = HostMap::make(names).value();
    const ReductionCase test = ReductionCase::random(random, hosts.ranks(), 40);
    const TreePlan plan(test.units, test.owned);
    for (int h = 0; h < hosts.hosts(); h++) {
      HostReduction reduction(plan, hosts, h);
      EXPECT_TRUE(reduction.is_of(plan));
      std::vector<std::vector<float>> memory;
      std::vector<const float*> sources;
      for (int r : hosts.members(h)) memory.push_back(test.pieces(plan, r));
      for (const std::vector<float>& pieces : memory)
        for (size_t at = 0; at < pieces.size(); at += 40) sources.push_back(&pieces[at]);
      const std::vector<UnitRange>& of_host = reduction.between().pieces(h);
      std::vector<float> out(of_host.size() * 40);
      reduction.run(sources, out.data(), 40);
      for (size_t p = 0; p < of_host.size(); p++) {
        const std::vector<float> expected = test.sum(of_host[p]);
        EXPECT_EQ(std::memcmp(&out[p * 40], expected.data(), 160), 0)
            << "trial " << trial << ", host " << h << ", piece " << p;
      }
    }
  }
}

TEST(HostReduction, KnowsItsPlan) {
  const HostMap hosts = HostMap::make({"a", "a", "b"}).value();
  const TreePlan plan(6, {{0, 2}, {2, 4}, {4, 6}}), other(6, {{0, 3}, {3, 4}, {4, 6}});
  EXPECT_FALSE(HostReduction(plan, hosts, 0).is_of(other));
  EXPECT_FALSE(HostReduction(plan, hosts, 0).is_of(TreePlan(5, {{0, 2}, {2, 4}, {4, 5}})));
}

// The sum over all ranks of a counter.
int64_t everybodys(World& world, int64_t value) {
  int64_t sum = 0;
  const auto texts = world.exchange(std::to_string(value), kLong);
  for (const std::string& text : *texts) sum += std::stoll(text);
  return sum;
}

// What `verb` has all ranks together send to other hosts.
int64_t sent_between(World& world, Communicator& comm,
                     const std::function<Status(Communicator&)>& verb) {
  const int64_t before = comm.traffic().sent_between;
  const Status status = verb(comm);
  EXPECT_TRUE(status.ok()) << status.to_string();
  const int64_t sent = everybodys(world, comm.traffic().sent_between - before);
  EXPECT_EQ(everybodys(world, comm.traffic().received_between),
            everybodys(world, comm.traffic().sent_between));
  EXPECT_EQ(everybodys(world, comm.traffic().received_within),
            everybodys(world, comm.traffic().sent_within));
  return sent;
}

void check_what_crosses(World& world) {
  auto comm = whole_group(world);
  EXPECT_THAT(comm->name(), HasSubstr("hierarchical all group {0, 1, 2, 3}"));
  for (int64_t count : {100, 50000}) {
    // One piece per host, to the other host, once.
    EXPECT_EQ(sent_between(world, *comm,
                           [&](Communicator& c) {
                             const TreePlan plan(4, {{0, 1}, {1, 2}, {2, 3}, {3, 4}});
                             std::vector<float> piece(size_t(count), 1.0f), out(piece.size());
                             return c.all_reduce(plan, piece.data(), out.data(), count);
                           }),
              2 * 4 * count);
    EXPECT_EQ(sent_between(world, *comm,
                           [&](Communicator& c) {
                             std::vector<char> in(size_t(count), 'x'), out(size_t(4 * count));
                             const std::vector<int64_t> sizes(4, count);
                             return c.all_gather(in.data(), out.data(), sizes);
                           }),
              4 * count);
    EXPECT_EQ(sent_between(world, *comm,
                           [&](Communicator& c) {
                             std::vector<char> data(static_cast<size_t>(count));
                             return c.broadcast(data.data(), count, 1);
                           }),
              count);
    EXPECT_EQ(sent_between(world, *comm,
                           [&](Communicator& c) {
                             std::vector<char> in(size_t(4 * count)), out(size_t(4 * count));
                             const std::vector<int64_t> sizes(4, count);
                             return c.all_to_all(in.data(), sizes, out.data(), sizes);
                           }),
              8 * count);
  }
}

TEST(Hierarchical, EachByteCrossesOncePerPairOfHosts) {
  run_local_hosts({2, 2}, check_what_crosses);
}

TEST(Hierarchical, MessagesCountForTheHostsTheyPass) {
  run_local_hosts({2, 1}, [](World& world) {
    auto comm = whole_group(world);
    std::vector<char> data(10000);
    EXPECT_EQ(comm->shares_host(world.rank() == 2 ? 0 : 2), false);
    if (world.rank() == 0) {
      EXPECT_TRUE(comm->shares_host(1));
      ASSERT_TRUE(comm->send(data.data(), 10000, 1).ok());
      ASSERT_TRUE(comm->send(data.data(), 700, 2).ok());
      EXPECT_EQ(comm->traffic().sent_within, 10000);
      EXPECT_EQ(comm->traffic().sent_between, 700);
    } else if (world.rank() == 1) {
      ASSERT_TRUE(comm->recv(data.data(), 10000, 0).ok());
      EXPECT_EQ(comm->traffic().received_within, 10000);
    } else {
      ASSERT_TRUE(comm->recv(data.data(), 700, 0).ok());
      EXPECT_EQ(comm->traffic().received_between, 700);
    }
    meet(world);
  });
}

TEST(Hierarchical, GroupsThatDoNotShareHostsOrAreNoNeighboursAreOfOneKind) {
  run_local_hosts({2, 2}, [](World& world) {
    const int r = world.rank();
    const auto apart = world.group({r % 2, r % 2 + 2}, "dp").value();
    EXPECT_THAT(apart->name(), HasSubstr("local dp group"));
    EXPECT_FALSE(apart->shares_host(1 - apart->rank()));
    const auto mixed = world.group({0, 2, 1, 3}, "tp").value();
    EXPECT_THAT(mixed->name(), HasSubstr("local tp group"));
    EXPECT_TRUE(mixed->barrier().ok());
  });
}

}  // namespace
}  // namespace cohort
