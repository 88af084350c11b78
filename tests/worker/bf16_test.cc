// SPDX-License-Identifier: Apache-2.0
// Models with bf16 weights in ActivationMode::bf16, and with a KV cache in bf16: one answer, which
// is close to that of f32.
#include <gtest/gtest.h>

#include <cmath>

#include "base/cpu.h"
#include "tests/support/replay.h"
#include "tests/support/spawn_ranks.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/worker/requests.h"
#include "worker/rank.h"

namespace cohort::testing {
namespace {

OpenCheckpoint tiny(DType dtype) {
  return [=] { return std::make_shared<TinyCheckpoint>(tiny_model(dtype)); };
}

ReplicaOptions with(ActivationMode mode, int tp = 1, int pp = 1, std::vector<int> shares = {}) {
  ReplicaOptions options = tiny_options(tp, pp, std::move(shares));
  options.activations = mode;
  return options;
}

// With a KV cache of the parameter's type.
class Bf16KvTest : public ::testing::TestWithParam<DType> {
 protected:
  static ReplicaOptions bf16(int tp = 1, int pp = 1, std::vector<int> shares = {}) {
    ReplicaOptions options = with(ActivationMode::bf16, tp, pp, std::move(shares));
    options.kv_dtype = GetParam();
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(Kv, Bf16KvTest, ::testing::Values(DType::f16, DType::bf16),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(Bf16KvTest, E08_E09_E10_EveryLayoutGivesTheSameBits) {
  const auto requests = mixed_requests();
  const auto expected = generate(tiny(DType::bf16), bf16(), requests);
  for (const TestOutput& output : expected) ASSERT_EQ(output.error, "");
  for (const auto& [tp, pp] : {std::pair(3, 1), std::pair(1, 3), std::pair(2, 2)})
    EXPECT_EQ(generate(tiny(DType::bf16), bf16(tp, pp), requests), expected)
        << "tp " << tp << " pp " << pp;
  EXPECT_EQ(generate(tiny(DType::bf16), bf16(2, 1, {2, 1}), requests), expected);
}

TEST_P(Bf16KvTest, E11_ChunksNeighboursThreadsAndInstructionSetsChangeNoBit) {
  const auto requests = mixed_requests();
  const auto expected = generate(tiny(DType::bf16), bf16(), requests);
  for (const int chunk : {1, 3, 17})
    EXPECT_EQ(generate(tiny(DType::bf16), bf16(), requests,
                       {.chunk = chunk, .first_slot = chunk % 6, .descending_blocks = true}),
              expected)
        << "chunk " << chunk;
  for (size_t i = 0; i < requests.size(); i++)
    EXPECT_EQ(generate(tiny(DType::bf16), bf16(), {requests[i]})[0], expected[i]);
  for (const Isa isa : kIsas) {
    if (!supported(isa)) continue;
    ReplicaOptions options = bf16();
    options.isa = isa;
    options.threads = isa == Isa::portable ? 2 : 1;
    EXPECT_EQ(generate(tiny(DType::bf16), options, requests), expected) << name(isa);
  }
}

// Rounding to 8 bits changes log-probabilities by some hundredths; it must change them.
void expect_close_to_f32(const OpenCheckpoint& open, const ReplicaOptions& options) {
  std::vector<TestRequest> requests;
  for (const int length : {1, 5, 16, 37})
    requests.push_back({some_tokens(length, uint32_t(length), 100), 1, greedy(8), 0});
  const auto exact = generate(open, with(ActivationMode::f32), requests);
  const auto rounded = generate(open, options, requests);
  EXPECT_NE(rounded, exact);
  for (size_t i = 0; i < requests.size(); i++) {
    int common = 0;
    for (const TokenLogprob& a : exact[i].tokens[0].top)
      for (const TokenLogprob& b : rounded[i].tokens[0].top)
        if (a.token == b.token) {
          EXPECT_NEAR(a.logprob, b.logprob, 0.1);
          common++;
        }
    EXPECT_GE(common, 6) << "request " << i;
  }
}

TEST_P(Bf16KvTest, LogProbabilitiesAreCloseToThoseOfF32) {
  expect_close_to_f32(tiny(DType::bf16), bf16());
  const OpenCheckpoint llama = [] {
    return std::shared_ptr<Checkpoint>(
        require_ok(Checkpoint::open("tests/data/tiny_models/llama3_bf16")));
  };
  expect_close_to_f32(llama, bf16());
}

TEST(Bf16ModelTest, WithoutBf16WeightsItIsTheDefault) {
  const auto requests = mixed_requests();
  EXPECT_EQ(generate(tiny(DType::q8_0), with(ActivationMode::bf16), requests),
            generate(tiny(DType::q8_0), with(ActivationMode::int8), requests));
}

ReplicaOptions with_kv(ActivationMode mode, DType kv) {
  ReplicaOptions options = with(mode);
  options.kv_dtype = kv;
  return options;
}

// Quantised weights are multiplied as ever then, but keys and values are not.
TEST(Bf16ModelTest, AttentionIsInBf16WhereTheCacheIs) {
  const auto requests = mixed_requests();
  const auto bf16 =
      generate(tiny(DType::q8_0), with_kv(ActivationMode::bf16, DType::bf16), requests);
  EXPECT_NE(bf16,
            generate(tiny(DType::q8_0), with_kv(ActivationMode::int8, DType::bf16), requests));
}

// What ranks and replicas compare.
std::string arithmetic(DType weights, const ReplicaOptions& options) {
  std::string text;
  spawn_ranks(1, [&](World& world) {
    TinyCheckpoint checkpoint(tiny_model(weights));
    const auto rank = Rank::load(world, checkpoint, options, {});
    ASSERT_TRUE(rank.ok()) << rank.status().to_string();
    text = (*rank)->arithmetic();
  });
  return text;
}

TEST(Bf16ModelTest, TheArithmeticKeepsReplicasApart) {
  const std::string bf16 = arithmetic(DType::bf16, with(ActivationMode::bf16));
  EXPECT_NE(bf16, arithmetic(DType::bf16, with(ActivationMode::int8)));
  EXPECT_NE(bf16, arithmetic(DType::bf16, with(ActivationMode::f32)));
  EXPECT_NE(bf16, arithmetic(DType::bf16, with_kv(ActivationMode::bf16, DType::bf16)));
  EXPECT_EQ(arithmetic(DType::q8_0, with(ActivationMode::bf16)),
            arithmetic(DType::q8_0, with(ActivationMode::int8)))
      << "it changes nothing there";
  EXPECT_NE(arithmetic(DType::q8_0, with_kv(ActivationMode::bf16, DType::bf16)),
            arithmetic(DType::q8_0, with_kv(ActivationMode::int8, DType::bf16)))
      << "but attention";
}

TEST(Bf16ModelTest, TheCacheIsInBf16UnlessAnotherTypeIsAskedFor) {
  const auto chosen = [](DType weights, ActivationMode mode) {
    ReplicaOptions options = with(mode);
    options.choose_kv_dtype = true;
    return arithmetic(weights, options);
  };
  EXPECT_EQ(chosen(DType::bf16, ActivationMode::bf16),
            arithmetic(DType::bf16, with_kv(ActivationMode::bf16, DType::bf16)));
  for (const DType weights : {DType::bf16, DType::q8_0})
    EXPECT_EQ(chosen(weights, ActivationMode::int8),
              arithmetic(weights, with_kv(ActivationMode::int8, DType::f16)));
  EXPECT_EQ(chosen(DType::q8_0, ActivationMode::bf16),
            arithmetic(DType::q8_0, with_kv(ActivationMode::int8, DType::f16)));
}

TEST(Bf16ModelTest, RanksOfDifferentArithmeticRefuse) {
  spawn_ranks(2, [&](World& world) {
    TinyCheckpoint checkpoint(tiny_model(DType::bf16));
    const auto mode = world.rank() == 0 ? ActivationMode::bf16 : ActivationMode::int8;
    const Status status = Rank::load(world, checkpoint, with(mode, 2), {}).status();
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_NE(status.message().find("int8 and bf16 activations"), std::string::npos)
        << status.message();
  });
}

}  // namespace
}  // namespace cohort::testing
