// SPDX-License-Identifier: Apache-2.0
// What a GPU computes in 16 bits is as close to the CPU's f32 as those bits allow, for every kind
// of weights and cache.
#include <cmath>
#include <map>

#include "tests/cuda/worker_fixture.h"

namespace cohort::testing {
namespace {

struct Kind {
  std::string name;
  DType weights, dtype, kv;
  ActivationMode mode;
  double tolerance;  // of a log-probability, for this model (values spread over about 4)
};

class WorkerTypesTest : public GpuWorkerTest, public ::testing::WithParamInterface<Kind> {};

TEST_P(WorkerTypesTest, LogprobsAreClose) {
  const Kind& kind = GetParam();
  const auto requests = [](int logprobs) {
    std::vector<TestRequest> all;
    for (int length : {1, 5, 16, 17, 40, 61})
      all.push_back({some_tokens(length, uint32_t(length)), 1, greedy(logprobs), length % 3});
    return all;
  };
  ReplicaOptions cpu = tiny_options();
  cpu.kv_dtype = DType::f32;
  cpu.activations = kind.mode == ActivationMode::int8 ? ActivationMode::int8 : ActivationMode::f32;
  const auto expected = generate(tiny(kind.weights), cpu, requests(203));
  ReplicaOptions options = gpu_options(kind.dtype, 2);
  options.kv_dtype = kind.kv;
  options.activations = kind.mode;
  const auto got = generate(tiny(kind.weights), options, requests(20));
  for (size_t i = 0; i < got.size(); i++) {
    ASSERT_EQ(got[i].tokens.size(), 1u) << got[i].error;
    ASSERT_EQ(got[i].tokens[0].top.size(), 20u);
    std::map<int32_t, float> want;
    for (const TokenLogprob& t : expected[i].tokens[0].top) want[t.token] = t.logprob;
    for (const TokenLogprob& t : got[i].tokens[0].top)
      EXPECT_NEAR(t.logprob, want.at(t.token), kind.tolerance)
          << "request " << i << " token " << t.token;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, WorkerTypesTest,
    ::testing::Values(
        // 11 and 8 bits of mantissa.
        Kind{"f16", DType::f32, DType::f16, DType::f16, ActivationMode::native, 0.02},
        Kind{"bf16", DType::f32, DType::bf16, DType::bf16, ActivationMode::native, 0.16},
        Kind{"q4_0", DType::q4_0, DType::f16, DType::f16, ActivationMode::native, 0.02},
        Kind{"q4_1", DType::q4_1, DType::bf16, DType::bf16, ActivationMode::native, 0.16},
        Kind{"q8_0", DType::q8_0, DType::f16, DType::f16, ActivationMode::native, 0.02},
        // 4 bits in every key and value.
        Kind{"f16_f8", DType::f32, DType::f16, DType::f8_e4m3, ActivationMode::native, 0.5},
        // Exact but for the order of f32 sums; with int8 a rounding may fall the other way.
        Kind{"q4_1_f32", DType::q4_1, DType::f32, DType::f32, ActivationMode::f32, 1e-4},
        Kind{"q8_0_int8", DType::q8_0, DType::f32, DType::f32, ActivationMode::int8, 0.02}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cohort::testing
