// SPDX-License-Identifier: Apache-2.0
// The worker on emulated GPUs: every layout, captured and not, gives the CPU's tokens.
#include "tests/cuda/worker_fixture.h"

namespace cohort::testing {
namespace {

struct Case {
  int tp, pp;
  std::vector<int> shares;
};
const std::vector<Case>& layouts() {
  static const std::vector<Case> all = {{1, 1, {}}, {2, 1, {}}, {3, 1, {}}, {1, 2, {}},
                                        {1, 3, {}}, {2, 2, {}}, {2, 1, {2, 1}}};
  return all;
}

class WorkerLayoutsTest : public GpuWorkerTest {};

TEST_F(WorkerLayoutsTest, E08_F32GivesTheCpusTokensOnEveryLayout) {
  const auto requests = mixed_requests();
  const auto expected = cpu_answer(tiny(DType::f32), requests);
  for (const Case& c : layouts())
    for (bool graphs : {false, true}) {
      SCOPED_TRACE(concat("tp ", c.tp, " pp ", c.pp, " shares ", c.shares.size(), " graphs ", graphs));
      ReplicaOptions options = gpu_options(DType::f32, c.tp, c.pp, c.shares);
      options.gpu.graphs = graphs;
      expect_close(generate(tiny(DType::f32), options, requests), expected, 1e-4);
    }
}

}  // namespace
}  // namespace cohort::testing
