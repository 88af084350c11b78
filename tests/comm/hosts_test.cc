// SPDX-License-Identifier: Apache-2.0
// The suite over threads that act as if they stood on several hosts.
#include <gtest/gtest.h>

#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include "tests/comm/communicator_suite.h"
#include "tests/support/local_ranks.h"

namespace cohort {
namespace {

const std::vector<int> kRanksOfHosts[] = {{2, 2}, {1, 3}, {1, 2, 2}};

using Parameter = std::tuple<size_t, size_t>;  // indices of the hosts, of the check

std::string name_of(const ::testing::TestParamInfo<Parameter>& info) {
  std::string name;
  for (int ranks : kRanksOfHosts[std::get<0>(info.param)])
    name += (name.empty() ? "Hosts" : "And") + std::to_string(ranks);
  return name + communicator_checks()[std::get<1>(info.param)].name;
}

class HostsTest : public ::testing::TestWithParam<Parameter> {};

TEST_P(HostsTest, Check) {
  const auto [hosts, check] = GetParam();
  run_local_hosts(kRanksOfHosts[hosts], communicator_checks()[check].run);
}

INSTANTIATE_TEST_SUITE_P(Every, HostsTest,
                         ::testing::Combine(::testing::Range(size_t(0), std::size(kRanksOfHosts)),
                                            ::testing::Range(size_t(0),
                                                             communicator_checks().size())),
                         name_of);

}  // namespace
}  // namespace cohort
