// SPDX-License-Identifier: Apache-2.0
#include "worker/compressed_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/support/replay.h"
#include "tests/support/spawn_ranks.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/worker/requests.h"

namespace cohort::testing {
namespace {

std::vector<float> there_and_back(std::vector<float>& x, int64_t rows, int64_t columns) {
  std::vector<std::byte> bytes(size_t(compressed_bytes(rows, columns)));
  std::vector<float> back(x.size());
  compress(bytes.data(), Tensor(x.data(), DType::f32, {rows, columns}));
  expand(Tensor(back.data(), DType::f32, {rows, columns}), bytes.data());
  return back;
}

TEST(CompressedRowsTest, EveryValueIsWithinHalfAStepOfItsBlock) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 5);
  for (const int64_t columns : {1, 31, 32, 33, 577}) {
    std::vector<float> x(size_t(7 * columns));
    for (float& value : x) value = normal(random);
    const std::vector<float> back = there_and_back(x, 7, columns);
    for (size_t i = 0; i < x.size(); i++) {
      const int64_t row = int64_t(i) / columns, begin = int64_t(i) % columns / 32 * 32;
      float largest = 0;
      for (int64_t c = begin; c < std::min(begin + 32, columns); c++)
        largest = std::max(largest, std::fabs(x[size_t(row * columns + c)]));
      EXPECT_LE(std::fabs(back[i] - x[i]), largest / 127 * 0.5001) << i;
    }
  }
}

TEST(CompressedRowsTest, TakesLittleMoreThanAQuarter) {
  EXPECT_EQ(compressed_bytes(10, 4096), 10 * (4096 + 4096 / 32 * 4));
}

TEST(CompressedRowsTest, WhatIsNotFiniteStaysSoInItsBlockAlone) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    std::vector<float> x(64, 1.0f);
    x[40] = bad;
    const std::vector<float> back = there_and_back(x, 1, 64);
    for (int i = 0; i < 32; i++) EXPECT_EQ(back[size_t(i)], 1.0f);
    for (int i = 32; i < 64; i++) EXPECT_TRUE(std::isnan(back[size_t(i)]));
  }
  std::vector<float> zeros(32, 0.0f);
  EXPECT_EQ(there_and_back(zeros, 1, 32), zeros);
}

// Other bits than whole rows, the same for any company and for tp: only stages show.
TEST(CompressedRowsTest, AReplicaWithStagesAnswersTheSameInAnyCompany) {
  const auto open = [] { return std::make_shared<TinyCheckpoint>(tiny_model(DType::q8_0)); };
  ReplicaOptions options = tiny_options(1, 2);
  options.compress_activations = true;
  const auto requests = mixed_requests();
  const auto expected = generate(open, options, requests);
  EXPECT_NE(expected, generate(open, tiny_options(1, 2), requests));
  for (size_t i = 0; i < requests.size(); i++)
    EXPECT_EQ(generate(open, options, {requests[i]})[0], expected[i]);
  options.layout.tp = 2;
  EXPECT_EQ(generate(open, options, requests, {.chunk = 5}), expected);
}

}  // namespace
}  // namespace cohort::testing
