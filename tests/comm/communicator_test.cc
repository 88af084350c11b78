// SPDX-License-Identifier: Apache-2.0
// The suite over ranks that are threads or forked processes of this test (a group of one is solo).
// MPI: mpi_communicator_test.cc.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "tests/comm/communicator_suite.h"
#include "tests/support/forked_ranks.h"
#include "tests/support/local_ranks.h"

namespace cohort {
namespace {

enum class Backend { local, shm };

using Parameter = std::tuple<Backend, int, size_t>;  // ranks, index of the check

std::string name_of(const ::testing::TestParamInfo<Parameter>& info) {
  const auto [backend, ranks, check] = info.param;
  return std::string(backend == Backend::local ? "Local" : "Shm") + std::to_string(ranks) +
         communicator_checks()[check].name;
}

class CommunicatorTest : public ::testing::TestWithParam<Parameter> {};

TEST_P(CommunicatorTest, Check) {
  const auto [backend, ranks, check] = GetParam();
  const auto run = communicator_checks()[check].run;
  if (backend == Backend::local)
    run_local_ranks(ranks, run);
  else
    run_forked_ranks(ranks, run);
}

INSTANTIATE_TEST_SUITE_P(Every, CommunicatorTest,
                         ::testing::Combine(::testing::Values(Backend::local, Backend::shm),
                                            ::testing::Values(1, 2, 3, 5),
                                            ::testing::Range(size_t(0),
                                                             communicator_checks().size())),
                         name_of);

}  // namespace
}  // namespace cohort
