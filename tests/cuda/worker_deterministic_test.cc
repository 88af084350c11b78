// SPDX-License-Identifier: Apache-2.0
// --deterministic: one answer on GPUs too, bit for bit, for every layout, batch, chunk and graph.
#include "tests/cuda/worker_fixture.h"

namespace cohort::testing {
namespace {

struct Kind {
  std::string name;
  DType weights, dtype;
  ActivationMode mode;
};

class WorkerDeterministicTest : public GpuWorkerTest, public ::testing::WithParamInterface<Kind> {
 protected:
  static OpenCheckpoint open() { return tiny(GetParam().weights); }
  static ReplicaOptions options(int tp = 1, int pp = 1, std::vector<int> shares = {}) {
    ReplicaOptions options = gpu_options(GetParam().dtype, tp, pp, std::move(shares));
    options.activations = GetParam().mode;
    options.gpu.deterministic = true;
    return options;
  }
};

TEST_P(WorkerDeterministicTest, E08_E09_E10_EveryLayoutGivesTheSameBits) {
  const auto requests = mixed_requests();
  const auto expected = generate(open(), options(), requests);
  for (const auto& [tp, pp, shares] : std::vector<std::tuple<int, int, std::vector<int>>>{
           {2, 1, {}}, {3, 1, {}}, {4, 1, {}}, {1, 2, {}}, {2, 2, {}}, {2, 1, {2, 1}}}) {
    SCOPED_TRACE(concat("tp ", tp, " pp ", pp, " shares ", shares.size()));
    EXPECT_EQ(generate(open(), options(tp, pp, shares), requests), expected);
  }
}

TEST_P(WorkerDeterministicTest, E11_ChunksNeighboursAndGraphsChangeNoBit) {
  const auto requests = mixed_requests();
  const auto expected = generate(open(), options(), requests);
  for (int chunk : {3, 16}) {
    SCOPED_TRACE(concat("chunk ", chunk));
    const ScheduleOptions schedule{
        .chunk = chunk, .first_slot = chunk % 6, .descending_blocks = true};
    EXPECT_EQ(generate(open(), options(), requests, schedule), expected);
  }
  ReplicaOptions plain = options();
  plain.gpu.graphs = false;
  EXPECT_EQ(generate(open(), plain, requests), expected);
  for (size_t i = 0; i < requests.size(); i++)
    EXPECT_EQ(generate(open(), options(), {requests[i]})[0], expected[i]) << "request " << i;
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, WorkerDeterministicTest,
    ::testing::Values(Kind{"f32", DType::f32, DType::f32, ActivationMode::f32},
                      Kind{"bf16", DType::f32, DType::bf16, ActivationMode::native},
                      Kind{"q4_1_in_f16", DType::q4_1, DType::f16, ActivationMode::native},
                      Kind{"q8_0_int8", DType::q8_0, DType::bf16, ActivationMode::int8}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cohort::testing
