// SPDX-License-Identifier: Apache-2.0
// The suite over ranks that are threads or forked processes of this test (a group of one is solo),
// and over threads that act as if they stood on several hosts.
// MPI: mpi_communicator_test.cc.
#include <gtest/gtest.h>

#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include "tests/comm/communicator_suite.h"
#include "tests/support/forked_ranks.h"
#include "tests/support/local_ranks.h"

namespace cohort {
namespace {

enum class Backend { local, shm, hosts };

struct Ranks {
  Backend backend;
  std::vector<int> of_hosts;  // ranks of each; local and shm have one host
};

const Ranks kRanks[] = {
    {Backend::local, {1}},    {Backend::local, {2}},       {Backend::local, {3}},
    {Backend::local, {5}},    {Backend::shm, {1}},         {Backend::shm, {2}},
    {Backend::shm, {3}},      {Backend::shm, {5}},         {Backend::hosts, {2, 2}},
    {Backend::hosts, {3, 1}}, {Backend::hosts, {1, 3}},    {Backend::hosts, {2, 1}},
    {Backend::hosts, {3, 2}}, {Backend::hosts, {1, 2, 2}},
};

using Parameter = std::tuple<size_t, size_t>;  // indices of the ranks, of the check

std::string name_of(const ::testing::TestParamInfo<Parameter>& info) {
  const Ranks& ranks = kRanks[std::get<0>(info.param)];
  std::string name = ranks.backend == Backend::local ? "Local"
                     : ranks.backend == Backend::shm ? "Shm"
                                                     : "Hosts";
  for (size_t h = 0; h < ranks.of_hosts.size(); h++)
    name += (h > 0 ? "And" : "") + std::to_string(ranks.of_hosts[h]);
  return name + communicator_checks()[std::get<1>(info.param)].name;
}

class CommunicatorTest : public ::testing::TestWithParam<Parameter> {};

TEST_P(CommunicatorTest, Check) {
  const Ranks& ranks = kRanks[std::get<0>(GetParam())];
  const auto run = communicator_checks()[std::get<1>(GetParam())].run;
  if (ranks.backend == Backend::shm)
    run_forked_ranks(ranks.of_hosts[0], run);
  else
    run_local_hosts(ranks.of_hosts, run);
}

INSTANTIATE_TEST_SUITE_P(Every, CommunicatorTest,
                         ::testing::Combine(::testing::Range(size_t(0), std::size(kRanks)),
                                            ::testing::Range(size_t(0),
                                                             communicator_checks().size())),
                         name_of);

}  // namespace
}  // namespace cohort
