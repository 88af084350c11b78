// SPDX-License-Identifier: Apache-2.0
// The whole worker under ThreadSanitizer, to which every stream and every thread of a kernel is a
// thread of its own: it has no race, and a missing edge is one, in whatever order work is done.
#include <cstdio>
#include <cstdlib>

#include "base/log.h"
#include "tests/cuda/worker_replica.h"
#include "tests/cuda_emulation/planting.h"

namespace cohort::testing {
namespace {

struct Case {
  std::string name;
  int tp, pp;
  bool graphs;
  int edge;  // which wait of the third step rank 0 leaves out; -1: none
};

std::vector<TestRequest> two_requests() {
  return {{some_tokens(3, 1), 0, greedy(), 0}, {some_tokens(2, 2), 0, greedy(), 0}};
}

[[noreturn]] void run_program(const Case& c) {
  log_info("starts");  // the logger is made before there are threads
  emu::set_device_count(8);
  GpuReplica replica(small_options(c.tp, c.pp, c.graphs));
  GpuReplica::Hooks hooks;
  hooks.before_launch = [&](size_t step, int rank) {
    if (c.edge >= 0 && step == 2 && rank == 0) emu::drop_next("cudaStreamWaitEvent", c.edge, 0);
  };
  replica.run(two_requests(), 6, hooks);
  std::fprintf(stderr, "no report\n");
  std::_Exit(0);
}

class WorkerRaceTest : public ::testing::TestWithParam<Case> {};

TEST_P(WorkerRaceTest, OnlyMistakesAreReported) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  if (GetParam().edge < 0)
    EXPECT_EXIT(run_program(GetParam()), ::testing::ExitedWithCode(0), "no report");
  else
    EXPECT_EXIT(run_program(GetParam()), ::testing::ExitedWithCode(66), "data race");
}

INSTANTIATE_TEST_SUITE_P(Replicas, WorkerRaceTest,
                         ::testing::Values(Case{"tp2", 2, 1, false, -1},
                                           Case{"tp2_graphs", 2, 1, true, -1},
                                           Case{"pp2", 1, 2, false, -1},
                                           Case{"pp2_graphs", 1, 2, true, -1},
                                           // Inputs that the compute stream does not wait for.
                                           Case{"inputs", 2, 1, false, 0},
                                           // A collective that does not wait for its operands.
                                           Case{"operands", 2, 1, false, 2},
                                           // What comes after it does not wait for the collective.
                                           Case{"sums", 2, 1, false, 3}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cohort::testing
