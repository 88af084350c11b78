// SPDX-License-Identifier: Apache-2.0
// No order in which GPUs may do their work changes a token: every layout, captured and not, in the
// order of issue, with the newest work first and in random orders. A sample of these, unless
// COHORT_ALL_SCHEDULES is set.
#include <cstdlib>

#include "tests/cuda/worker_fixture.h"

namespace cohort::testing {
namespace {

struct Layout {
  std::string name;
  int tp, pp;
  std::vector<int> shares;
  uint64_t number = 0;  // of the layout, so that samples differ
};

struct Order {
  emu::Schedule schedule;
  uint64_t seed;
};
std::vector<Order> orders(uint64_t number, bool graphs) {
  std::vector<Order> all = {{emu::Schedule::issue_order, 1}, {emu::Schedule::newest_first, 1}};
  for (uint64_t seed = 1; seed <= 20; seed++) all.push_back({emu::Schedule::random, seed});
  if (std::getenv("COHORT_ALL_SCHEDULES") != nullptr) return all;
  return {all[1], all[2 + (2 * number + graphs) % 20]};
}

// Of the kinds that mixed_requests has, shorter: prompts in chunks, drawn tokens and greedy ones.
std::vector<TestRequest> short_requests() {
  std::vector<TestRequest> requests = mixed_requests();
  for (TestRequest& request : requests) request.outputs = 4;
  return requests;
}

class WorkerSchedulesTest : public GpuWorkerTest, public ::testing::WithParamInterface<Layout> {
 protected:
  static void run(bool graphs) {
    static const std::vector<TestRequest> requests = short_requests();
    static const std::vector<TestOutput> expected = cpu_answer(tiny(DType::f32), requests);
    const Layout& layout = GetParam();
    ReplicaOptions options = gpu_options(DType::f32, layout.tp, layout.pp, layout.shares);
    options.gpu.graphs = graphs;
    for (const Order& order : orders(layout.number, graphs)) {
      SCOPED_TRACE(concat("schedule ", int(order.schedule), " seed ", order.seed));
      emu::set_schedule(order.schedule, order.seed);
      expect_close(generate(tiny(DType::f32), options, requests, {.chunk = 16}), expected, 1e-4);
    }
  }
};

TEST_P(WorkerSchedulesTest, E08_NoOrderOfWorkChangesTokens) { run(false); }
TEST_P(WorkerSchedulesTest, E08_NoOrderOfCapturedWorkChangesTokens) { run(true); }

INSTANTIATE_TEST_SUITE_P(Layouts, WorkerSchedulesTest,
                         ::testing::Values(Layout{"alone", 1, 1, {}, 0}, Layout{"tp2", 2, 1, {}, 1},
                                           Layout{"tp3", 3, 1, {}, 2}, Layout{"pp2", 1, 2, {}, 3},
                                           Layout{"pp3", 1, 3, {}, 4},
                                           Layout{"tp2_pp2", 2, 2, {}, 5},
                                           Layout{"uneven", 2, 1, {2, 1}, 6}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cohort::testing
