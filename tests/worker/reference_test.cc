// SPDX-License-Identifier: Apache-2.0
// The whole forward pass against an independent one in double precision.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/reference_model.h"
#include "tests/support/replay.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/worker/requests.h"

namespace cohort::testing {
namespace {

// The worker's logprobs of the whole vocabulary after each prefix of the tokens.
std::vector<std::vector<double>> worker_logprobs(const OpenCheckpoint& open,
                                                 const ReplicaOptions& options,
                                                 const std::vector<int32_t>& tokens, int vocab) {
  std::vector<TestRequest> requests;
  for (size_t n = 1; n <= tokens.size(); n++)
    requests.push_back({{tokens.begin(), tokens.begin() + int64_t(n)}, 1, greedy(vocab), 0});
  std::vector<std::vector<double>> rows;
  for (const TestOutput& output : generate(open, options, requests)) {
    std::vector<double> row(size_t(vocab), NAN);
    for (const TokenLogprob& entry : output.tokens.at(0).top)
      row[size_t(entry.token)] = double(entry.logprob);
    rows.push_back(std::move(row));
  }
  return rows;
}

double largest_difference(const OpenCheckpoint& open, const ReplicaOptions& options,
                          const std::vector<int32_t>& tokens) {
  const auto checkpoint = open();
  const int vocab = int(checkpoint->config().vocab);
  const auto expected = reference_logits(*checkpoint, tokens);
  const auto actual = worker_logprobs(open, options, tokens, vocab);
  double largest = 0;
  for (size_t t = 0; t < tokens.size(); t++) {
    const auto row = log_softmax(expected[t]);
    for (size_t i = 0; i < row.size(); i++) {
      const double difference = std::abs(row[i] - actual[t][i]);
      if (!(difference <= largest)) largest = difference;  // NaN stays
    }
  }
  return largest;
}

class ReferenceTest : public ::testing::TestWithParam<DType> {};

// Rounding to f32 in sums of a few hundred terms over three layers: some 1e-6 relative on logits of
// magnitude 10.
TEST_P(ReferenceTest, E08_F32ActivationsAgreeWithDoublePrecision) {
  const auto open = [] { return std::make_shared<TinyCheckpoint>(tiny_model(GetParam())); };
  ReplicaOptions options = tiny_options(2, 2);
  options.activations = ActivationMode::f32;
  const double largest = largest_difference(open, options, some_tokens(40, 6));
  RecordProperty("largest_difference", std::to_string(largest));
  EXPECT_LT(largest, 2e-4);
}

// int8 activations round each value to 1 part in 254 of its block's largest; logits reach
// 10 here.
TEST_P(ReferenceTest, E08_Int8ActivationsStayClose) {
  const auto open = [] { return std::make_shared<TinyCheckpoint>(tiny_model(GetParam())); };
  const double largest = largest_difference(open, tiny_options(), some_tokens(40, 6));
  RecordProperty("largest_difference", std::to_string(largest));
  EXPECT_LT(largest, 0.5);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, ReferenceTest,
                         ::testing::Values(DType::f32, DType::q4_0, DType::q4_1, DType::q8_0),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace cohort::testing
