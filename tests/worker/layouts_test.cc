// SPDX-License-Identifier: Apache-2.0
// One answer: tokens and logprobs are the same bits for every layout, chunk size, batch, number of
// threads and instruction set.
#include <gtest/gtest.h>

#include "base/cpu.h"
#include "tests/support/replay.h"
#include "tests/support/spawn_ranks.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/worker/requests.h"
#include "worker/rank.h"

namespace cohort::testing {
namespace {

OpenCheckpoint tiny(DType dtype, bool tied = true) {
  return [=] { return std::make_shared<TinyCheckpoint>(tiny_model(dtype, tied)); };
}

struct Case {
  int tp, pp;
  std::vector<int> shares;
};

const std::vector<Case>& layouts() {
  static const std::vector<Case> all = {{2, 1, {}}, {3, 1, {}}, {1, 2, {}},
                                        {1, 3, {}}, {2, 2, {}}, {2, 1, {2, 1}},
                                        {4, 1, {}}, {5, 1, {}}, {2, 1, {4, 5}}};
  return all;
}

class LayoutsTest : public ::testing::TestWithParam<DType> {};

TEST_P(LayoutsTest, E08_E09_E10_EveryLayoutGivesTheSameBits) {
  const auto requests = mixed_requests();
  const auto expected = generate(tiny(GetParam()), tiny_options(), requests);
  for (size_t i = 0; i < requests.size(); i++) {
    ASSERT_EQ(int(expected[i].tokens.size()), requests[i].outputs);
    ASSERT_EQ(expected[i].error, "");
    for (const SampledToken& token : expected[i].tokens) {
      ASSERT_TRUE(token.finite);
      ASSERT_LT(token.logprob, 0);
    }
  }
  for (const Case& c : layouts()) {
    SCOPED_TRACE(concat("tp ", c.tp, " pp ", c.pp, " shares ", c.shares.size()));
    EXPECT_EQ(generate(tiny(GetParam()), tiny_options(c.tp, c.pp, c.shares), requests), expected);
  }
}

// 2 KV heads, each of which several ranks have.
TEST(OneAnswerTest, E10_MoreRanksThanKvHeadsGiveTheSameBits) {
  TinyModel model = tiny_model(DType::q8_0);
  model.config.heads = 14, model.config.kv_heads = 2;
  const auto open = [=] { return std::make_shared<TinyCheckpoint>(model); };
  const auto requests = mixed_requests();
  const auto expected = generate(open, tiny_options(), requests);
  for (const TestOutput& output : expected) EXPECT_EQ(output.error, "");
  for (const Case& c : {Case{2, 1, {}}, Case{3, 1, {}}, Case{4, 1, {}}, Case{2, 1, {1, 3}}})
    EXPECT_EQ(generate(open, tiny_options(c.tp, c.pp, c.shares), requests), expected) << c.tp;
}

INSTANTIATE_TEST_SUITE_P(Dtypes, LayoutsTest,
                         ::testing::Values(DType::f32, DType::q4_1, DType::q8_0),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(OneAnswerTest, E08_UntiedHeadGivesTheSameBitsOnEveryLayout) {
  const auto requests = mixed_requests();
  const auto expected = generate(tiny(DType::q4_1, false), tiny_options(), requests);
  for (const Case& c : layouts())
    EXPECT_EQ(generate(tiny(DType::q4_1, false), tiny_options(c.tp, c.pp, c.shares), requests),
              expected);
}

TEST(OneAnswerTest, E09_UnevenStagesGiveTheSameBits) {
  const auto requests = mixed_requests();
  const auto expected = generate(tiny(DType::q4_1), tiny_options(), requests);
  ReplicaOptions options = tiny_options(1, 2);
  options.layout.stage_layers = {1, 2};
  EXPECT_EQ(generate(tiny(DType::q4_1), options, requests), expected);
}

// More stages than token messages that may be unread, and sequences that come and go at all times.
TEST(OneAnswerTest, E09_ManyStagesFinishManyRequests) {
  TinyModel model = tiny_model(DType::q8_0);
  model.config.layers = 6;
  const auto open = [=] { return std::make_shared<TinyCheckpoint>(model); };
  std::vector<TestRequest> requests;
  for (int i = 0; i < 60; i++)
    requests.push_back(
        {some_tokens(1 + i * 7 % 23, uint32_t(i)), 1 + i * 5 % 13, greedy(0), i / 2});
  const auto expected = generate(open, tiny_options(), requests);
  EXPECT_EQ(generate(open, tiny_options(1, 6), requests), expected);
  EXPECT_EQ(generate(open, tiny_options(2, 3), requests), expected);
}

TEST(OneAnswerTest, E11_ChunksNeighboursSlotsAndBlocksChangeNoBit) {
  const auto requests = mixed_requests();
  const auto expected = generate(tiny(DType::q4_1), tiny_options(), requests);
  for (int chunk : {1, 3, 16, 17}) {
    SCOPED_TRACE(concat("chunk ", chunk));
    const ScheduleOptions schedule{
        .chunk = chunk, .first_slot = chunk % 6, .descending_blocks = true};
    EXPECT_EQ(generate(tiny(DType::q4_1), tiny_options(), requests, schedule), expected);
  }
  for (size_t i = 0; i < requests.size(); i++)
    EXPECT_EQ(generate(tiny(DType::q4_1), tiny_options(), {requests[i]})[0], expected[i]);
}

TEST(OneAnswerTest, E13_SeedsDecideDraws) {
  SamplingParams drawn;
  drawn.temperature = 1.5f;
  std::vector<TestRequest> requests;
  for (uint64_t seed : {1, 2, 1}) {
    drawn.seed = seed;
    requests.push_back({some_tokens(8, 9), 12, drawn, int(seed)});
  }
  const auto outputs = generate(tiny(DType::q8_0), tiny_options(2), requests);
  EXPECT_EQ(outputs[0], outputs[2]);
  EXPECT_NE(outputs[0], outputs[1]);
}

TEST(OneAnswerTest, ThreadsAndInstructionSetsChangeNoBit) {
  const auto requests = mixed_requests();
  for (DType dtype : {DType::f32, DType::q4_1, DType::q8_0}) {
    const auto expected = generate(tiny(dtype), tiny_options(), requests);
    for (Isa isa : kIsas) {
      if (!supported(isa)) continue;
      ReplicaOptions options = tiny_options();
      options.isa = isa;
      options.threads = isa == Isa::portable ? 2 : 1;
      EXPECT_EQ(generate(tiny(dtype), options, requests), expected) << name(isa);
    }
  }
}

TEST(OneAnswerTest, F32ActivationsGiveTheSameBitsOnEveryLayout) {
  const auto requests = mixed_requests();
  const auto with_f32 = [](int tp, int pp, std::vector<int> shares) {
    ReplicaOptions options = tiny_options(tp, pp, std::move(shares));
    options.activations = ActivationMode::f32;
    return options;
  };
  const auto expected = generate(tiny(DType::q4_1), with_f32(1, 1, {}), requests);
  for (const Case& c : layouts())
    EXPECT_EQ(generate(tiny(DType::q4_1), with_f32(c.tp, c.pp, c.shares), requests), expected);
}

TEST(OneAnswerTest, E08_TypesOfTheCacheGiveTheSameBitsOnEveryLayout) {
  const auto requests = mixed_requests();
  for (DType kv : {DType::f32, DType::bf16, DType::i8}) {
    const auto with_kv = [&](int tp, int pp, std::vector<int> shares) {
      ReplicaOptions options = tiny_options(tp, pp, std::move(shares));
      options.kv_dtype = kv;
      return options;
    };
    const auto expected = generate(tiny(DType::q8_0), with_kv(1, 1, {}), requests);
    for (const Case& c : layouts())
      EXPECT_EQ(generate(tiny(DType::q8_0), with_kv(c.tp, c.pp, c.shares), requests), expected);
    for (int chunk : {1, 16, 17})
      EXPECT_EQ(generate(tiny(DType::q8_0), with_kv(1, 1, {}), requests, {.chunk = chunk}),
                expected)
          << chunk;
  }
}

TEST(OneAnswerTest, E11_SmallLimitsChangeNoBit) {
  const auto requests = mixed_requests();
  const auto expected = generate(tiny(DType::q4_1), tiny_options(), requests);
  for (const auto& [rows, slots] :
       {std::pair(1, 1), std::pair(1, 6), std::pair(7, 1), std::pair(7, 3)})
    for (const auto& [tp, pp] : {std::pair(1, 1), std::pair(3, 1), std::pair(1, 3)}) {
      SCOPED_TRACE(concat("rows ", rows, " slots ", slots, " tp ", tp, " pp ", pp));
      ReplicaOptions options = tiny_options(tp, pp);
      options.limits.max_rows = rows;
      options.limits.max_slots = slots;
      EXPECT_EQ(generate(tiny(DType::q4_1), options, requests), expected);
    }
}

// The last token needs no position: a prompt of 60 and 37 tokens fill a context of 96.
TEST(OneAnswerTest, E08_ASequenceFillsTheContextToItsLastPosition) {
  const std::vector<TestRequest> requests = {{some_tokens(60, 7), 37, greedy(), 0},
                                             {some_tokens(96, 8), 1, greedy(), 0}};
  const auto expected = generate(tiny(DType::q4_1), tiny_options(), requests);
  ASSERT_EQ(expected[0].tokens.size(), 37u);
  ReplicaOptions longer = tiny_options();
  longer.limits.max_context = 128;
  EXPECT_EQ(generate(tiny(DType::q4_1), longer, requests), expected);
  for (const Case& c : layouts())
    EXPECT_EQ(generate(tiny(DType::q4_1), tiny_options(c.tp, c.pp, c.shares), requests), expected);
}

TEST(OneAnswerTest, E08_OfEqualLogitsTheLowestTokenIsTakenOnEveryLayout) {
  const TinyModel model = tiny_model(DType::q8_0, false);
  // The table's second half is its first: each logit comes twice, on one rank or on two.
  const int64_t hidden = model.config.hidden, half = model.config.vocab / 2;
  std::vector<float> head(size_t(model.config.vocab * hidden), 0.0f);
  for (int64_t i = 0; i < half * hidden; i++)
    head[size_t(i)] = head[size_t(i + half * hidden)] = 0.01f * float((i * 7919) % 101 - 50);
  const auto open = [&] {
    auto checkpoint = std::make_shared<TinyCheckpoint>(model);
    checkpoint->set("head", head);
    return checkpoint;
  };
  const std::vector<TestRequest> requests = {{some_tokens(9, 4), 20, greedy(), 0}};
  const auto expected = generate(open, tiny_options(), requests);
  for (const SampledToken& sampled : expected[0].tokens) EXPECT_LE(sampled.token, half);
  for (const Case& c : layouts())
    EXPECT_EQ(generate(open, tiny_options(c.tp, c.pp, c.shares), requests), expected);
}

}  // namespace
}  // namespace cohort::testing
