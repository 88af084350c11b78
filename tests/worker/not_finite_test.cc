// SPDX-License-Identifier: Apache-2.0
// A value that is not finite fails its own sequence, with the place, and nobody else's.
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/replay.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/worker/requests.h"

namespace cohort::testing {
namespace {

constexpr int32_t kPoison = 200;  // no other test request has this token

// An untied model (a poisoned row of a tied table would reach everybody's logits) whose embedding
// of kPoison has this value in one place.
OpenCheckpoint poisoned(float value) {
  return [=] {
    auto checkpoint = std::make_shared<TinyCheckpoint>(tiny_model(DType::f32, false));
    std::vector<float> table(203 * 96);
    for (size_t i = 0; i < table.size(); i++) table[i] = float(i * 37 % 101) * 0.01f - 0.5f;
    table[size_t(kPoison) * 96 + 5] = value;
    checkpoint->set("embedding", table);
    return checkpoint;
  };
}

std::vector<TestRequest> with_poison() {
  auto requests = mixed_requests();
  for (TestRequest& request : requests)
    for (int32_t& token : request.prompt) token %= kPoison;
  requests[0].prompt[3] = kPoison;
  // The token must not be drawn by the healthy ones.
  for (TestRequest& request : requests) request.sampling.logit_bias.push_back({kPoison, -1e9f});
  return requests;
}

TEST(NotFiniteTest, FailsItsOwnSequenceAndSaysWhere) {
  const auto requests = with_poison();
  for (const auto& [tp, pp] : {std::pair(1, 1), std::pair(2, 2)}) {
    const auto outputs =
        generate(poisoned(std::numeric_limits<float>::infinity()), tiny_options(tp, pp), requests);
    EXPECT_EQ(outputs[0].error, "embedding: value is not finite");
    for (size_t i = 1; i < outputs.size(); i++) {
      EXPECT_EQ(outputs[i].error, "") << i;
      EXPECT_EQ(int(outputs[i].tokens.size()), requests[i].outputs);
    }
  }
}

// The same requests with the sick one and without: its neighbours' bits do not change, even those
// of later sequences that inherit its blocks.
TEST(NotFiniteTest, NeighboursAndHeirsOfTheBlocksAreUnchanged) {
  auto requests = with_poison();
  for (int i = 0; i < 4; i++)  // more sequences than slots: slots and blocks change hands
    requests.push_back({some_tokens(9 + i, uint32_t(20 + i), kPoison), 4, requests[0].sampling, 4});
  const auto sick =
      generate(poisoned(std::numeric_limits<float>::quiet_NaN()), tiny_options(2), requests);
  const auto well = generate(poisoned(0.5f), tiny_options(2), requests);
  EXPECT_NE(sick[0].error, "");
  for (size_t i = 1; i < requests.size(); i++) EXPECT_EQ(sick[i], well[i]) << i;
}

TEST(NotFiniteTest, ALayerIsNamed) {
  const auto open = [] {
    auto checkpoint = std::make_shared<TinyCheckpoint>(tiny_model(DType::f32));
    const WeightInfo* down = checkpoint->find("layers.1.feed_forward.down");
    checkpoint->set(down->name, std::vector<float>(size_t(down->rows * down->columns),
                                                   std::numeric_limits<float>::infinity()));
    return checkpoint;
  };
  for (const auto& [tp, pp] : {std::pair(1, 1), std::pair(3, 1), std::pair(1, 3)}) {
    const auto outputs = generate(open, tiny_options(tp, pp), {mixed_requests()[0]});
    EXPECT_EQ(outputs[0].error, "layer 1, feed-forward: value is not finite");
  }
}

TEST(NotFiniteTest, LogitsAreNamed) {
  const auto open = [] {
    auto checkpoint = std::make_shared<TinyCheckpoint>(tiny_model(DType::f32, false));
    checkpoint->set("head", std::vector<float>(203 * 96, std::numeric_limits<float>::quiet_NaN()));
    return checkpoint;
  };
  const auto outputs = generate(open, tiny_options(), {mixed_requests()[0]});
  EXPECT_EQ(outputs[0].error, "final logits: value is not finite");
}

}  // namespace
}  // namespace cohort::testing
