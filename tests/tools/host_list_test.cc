// SPDX-License-Identifier: Apache-2.0
#include "tools/host_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/host_address.h"
#include "tools/up_launch.h"

namespace cohort {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

std::string spread(const std::string& hosts, int tp, int dp, int pp) {
  auto lists = parse_host_lists(hosts);
  if (!lists.ok()) return lists.status().message();
  const Status status = spread_ranks((*lists)[0], tp, dp, pp);
  return status.ok() ? to_string((*lists)[0]) : status.message();
}

TEST(HostList, RanksOfAStageShareAHostFirst) {
  EXPECT_EQ(spread("a", 2, 1, 2), "a:4");
  EXPECT_EQ(spread("a,b", 2, 1, 2), "a:2,b:2");
  EXPECT_EQ(spread("a,b", 2, 1, 3), "a:4,b:2");
  EXPECT_EQ(spread("a,b,c,d", 1, 4, 1), "a:1,b:1,c:1,d:1");
}

TEST(HostList, ThenRanksOfATensorParallelGroup) {
  EXPECT_EQ(spread("a,b", 2, 3, 1), "a:4,b:2");
  EXPECT_EQ(spread("a,b", 3, 1, 1), "a:2,b:1");
}

TEST(HostList, CountsThatWereGivenStayAndMustAddUp) {
  EXPECT_EQ(spread("a:1,b:2", 3, 1, 1), "a:1,b:2");
  EXPECT_THAT(spread("a:2,b:2", 3, 1, 1), HasSubstr("room for 4 ranks (a:2,b:2)"));
}

TEST(HostList, RefusesHostsWithNothingToDo) {
  EXPECT_THAT(spread("a,b,c", 2, 1, 1), HasSubstr("3 hosts for a replica of 2 ranks"));
}

TEST(HostList, RefusesWhatIsNoListOfHosts) {
  for (const char* text : {"", ",", "a,", "a:0", "a:", "a:x", "a:1:2", "a:-1", "-a", "a b", "a;b",
                           "a/", "a:99999999999"})
    EXPECT_THAT(spread(text, 1, 1, 1), HasSubstr("--hosts must be")) << text;
  EXPECT_THAT(spread("a,a", 1, 1, 2), HasSubstr("twice"));
  EXPECT_THAT(spread("a:1,b", 1, 1, 2), HasSubstr("some hosts only"));
}

TEST(HostAddress, KnowsWhichAddressesLieInANetwork) {
  EXPECT_TRUE(network_contains("10.1.0.0/16", "10.1.255.3"));
  EXPECT_FALSE(network_contains("10.1.0.0/16", "10.2.0.1"));
  EXPECT_TRUE(network_contains("10.1.2.3/32", "10.1.2.3"));
  EXPECT_TRUE(network_contains("0.0.0.0/0", "192.168.1.1"));
  for (const char* text : {"10.1.0.0", "10.1.0.0/33", "10.1/16", "eth0", "10.1.0.0/", "/8"})
    EXPECT_FALSE(network_contains(text, "10.1.0.1")) << text;
  const Interface one{.name = "e", .address = "10.1.2.3", .prefix = 20, .loopback = false};
  EXPECT_EQ(one.network(), "10.1.0.0/20");
}

TEST(HostAddress, NamesWhatItCannotFind) {
  EXPECT_THAT(resolve_host("no-such-host.invalid").status().message(),
              HasSubstr("no-such-host.invalid"));
  const Status status = find_interface("203.0.113.0/24").status();
  EXPECT_THAT(status.message(), HasSubstr("203.0.113.0/24"));
  EXPECT_THAT(status.message(), HasSubstr("127.0.0.1"));
  EXPECT_EQ(find_interface("127.0.0.0/8")->loopback, true);
  EXPECT_EQ(interface_towards("127.0.0.9")->address, "127.0.0.1");
}

TEST(UpHosts, WithoutHostsEveryRankIsHere) {
  UpOptions options;
  options.tp = 2;
  options.replicas = 3;
  const auto plan = plan_hosts(options);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->listen, "127.0.0.1");
  EXPECT_EQ(plan->most_ranks, 6);
  ASSERT_EQ(plan->replicas.size(), 3u);
  EXPECT_TRUE(plan->replicas[2].others.empty());
  EXPECT_EQ(plan->replicas[2].first_gpu, 4);
  const Command command = replica_command(options, {"/bin", "/m"}, *plan, "127.0.0.1:1", "", 0);
  EXPECT_THAT(command.arguments, Contains("isolated"));
}

TEST(UpHosts, OtherHostsGetAddressesThatTheyCanReach) {
  UpOptions options;
  options.tp = 2;
  options.hosts = "localhost,203.0.113.1";  // an address of documentation, in no network of ours
  const auto plan = plan_hosts(options);
  // Where no route leads anywhere, that is the answer.
  if (!plan.ok()) {
    EXPECT_THAT(plan.status().message(), HasSubstr("203.0.113.1"));
    return;
  }
  EXPECT_FALSE(plan->listen.starts_with("127."));
  const ReplicaHosts& replica = plan->replicas[0];
  EXPECT_EQ(replica.others, std::vector<std::string>{"203.0.113.1"});
  EXPECT_EQ(replica.rank_host, plan->listen);
  EXPECT_EQ(replica.network, "") << "not all hosts are in one network";
}

TEST(UpHosts, ReplicasTakeListsInTurnAndGpusOneAfterTheOther) {
  UpOptions options;
  options.tp = 2;
  options.replicas = 2;
  options.device = "cuda";
  options.hosts = "localhost";
  const auto plan = plan_hosts(options);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->replicas[1].first_gpu, 2);
  EXPECT_EQ(plan->replicas[1].gpus, 2);
  EXPECT_EQ(plan->most_ranks, 4);
  options.hosts = "localhost/localhost/localhost";
  EXPECT_THAT(plan_hosts(options).status().message(), HasSubstr("lists for 3 replicas"));
  options.hosts = "localhost,127.0.0.1";
  EXPECT_THAT(plan_hosts(options).status().message(), HasSubstr("same machine"));
}

}  // namespace
}  // namespace cohort
