// SPDX-License-Identifier: Apache-2.0
// Replicas on emulated GPUs, for tests of the whole worker.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda_emulation/runtime.h"
#include "tests/support/replay.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/worker/requests.h"

namespace cohort::testing {

inline OpenCheckpoint tiny(DType dtype, bool tied = true) {
  return [=] { return std::make_shared<TinyCheckpoint>(tiny_model(dtype, tied)); };
}

inline ReplicaOptions gpu_options(DType dtype, int tp = 1, int pp = 1,
                                  std::vector<int> shares = {}) {
  ReplicaOptions options = tiny_options(tp, pp, std::move(shares));
  options.gpu.device = DeviceKind::cuda;
  options.gpu.dtype = options.kv_dtype = dtype;
  options.activations = ActivationMode::native;
  return options;
}

// The CPU's answer in f32: what a GPU is compared with.
inline std::vector<TestOutput> cpu_answer(const OpenCheckpoint& open,
                                          const std::vector<TestRequest>& requests) {
  ReplicaOptions options = tiny_options();
  options.activations = ActivationMode::f32;
  return generate(open, options, requests);
}

inline std::vector<int32_t> ids(const TestOutput& output) {
  std::vector<int32_t> ids;
  for (const SampledToken& token : output.tokens) ids.push_back(token.token);
  return ids;
}

// The same tokens, and log-probabilities within `tolerance`.
inline void expect_close(const std::vector<TestOutput>& got, const std::vector<TestOutput>& want,
                         double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); i++) {
    EXPECT_EQ(got[i].error, want[i].error) << "request " << i;
    ASSERT_EQ(ids(got[i]), ids(want[i])) << "request " << i;
    for (size_t t = 0; t < got[i].tokens.size(); t++)
      EXPECT_NEAR(got[i].tokens[t].logprob, want[i].tokens[t].logprob, tolerance)
          << "request " << i << " token " << t;
  }
}

class GpuWorkerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    emu::reset();
    emu::set_device_count(8);
    emu::set_schedule(emu::Schedule::issue_order);
    emu::set_stall_limit(std::chrono::seconds(20));
  }
  void TearDown() override {
    EXPECT_TRUE(emu::reports().empty());
    emu::reset();
  }
};

}  // namespace cohort::testing
