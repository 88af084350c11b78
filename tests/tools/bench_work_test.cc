// SPDX-License-Identifier: Apache-2.0
// What `cohort bench` says a piece of work asks of the machine.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/spawn_ranks.h"
#include "tools/bench/model_work.h"
#include "tools/bench/timing.h"
#include "worker/rank.h"

namespace cohort::bench {
namespace {

using cohort::testing::require_ok;

MachineLimits machine_of(double memory, double cache, double int8, double fma) {
  return {.threads = 2,
          .memory = {memory / 2, memory},
          .cache = {cache / 2, cache},
          .peaks = {.isa = Isa::portable, .fma = {fma, fma}, .int8 = {int8, int8}, .tiles = {}},
          .placement = {}};
}

TEST(BenchDemand, TheSlowestPartBounds) {
  const MachineLimits machine = machine_of(10, 100, 50, 20);
  const LeastTime memory = least_time({.memory_bytes = 30, .int8_operations = 100}, machine);
  EXPECT_DOUBLE_EQ(memory.seconds, 3);
  EXPECT_EQ(name(memory.bound), "bandwidth");
  const LeastTime computing =
      least_time({.memory_bytes = 30, .int8_operations = 200, .fma_operations = 10}, machine);
  EXPECT_DOUBLE_EQ(computing.seconds, 4.5);
  EXPECT_EQ(name(computing.bound), "int8");
  const LeastTime plain = least_time({.cache_bytes = 30, .fma_operations = 10}, machine);
  EXPECT_DOUBLE_EQ(plain.seconds, 0.5);
  EXPECT_EQ(name(plain.bound), "fma");
  EXPECT_EQ(name(least_time({.cache_bytes = 300, .fma_operations = 10}, machine).bound), "cache");
}

TEST(BenchDemand, ProductsOfBf16AreDoneOnTilesWhereThereAreSome) {
  MachineLimits machine = machine_of(10, 100, 50, 20);
  EXPECT_DOUBLE_EQ(least_compute_time({.bf16_operations = 40}, machine).seconds, 2);
  machine.peaks.tiles = {100, 400};
  const LeastTime tiles = least_compute_time({.bf16_operations = 40}, machine);
  EXPECT_DOUBLE_EQ(tiles.seconds, 0.1);
  EXPECT_EQ(name(tiles.bound), "tiles");
}

TEST(BenchTiming, MedianAndBothEnds) {
  const Spread odd = spread({3, 1, 2});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.least, 1);
  EXPECT_EQ(odd.greatest, 3);
  EXPECT_EQ(odd.count, 3);
  EXPECT_EQ(spread({4, 1, 2, 3}).median, 2.5);
}

TEST(BenchTiming, ShortCallsAreTimedTogether) {
  int calls = 0;
  const Spread times = time_calls([&] { calls++; }, 0, 2);
  EXPECT_EQ(times.count, 2);
  EXPECT_GT(calls, 2);
  EXPECT_GT(times.least, 0);
}

// The sum over shapes is what a rank has in memory, in every family.
TEST(BenchModelWork, CountsThePackedBytesThatARankHas) {
  const std::filesystem::path folder = "tests/data/tiny_models";
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const auto checkpoint = require_ok(Checkpoint::open(entry.path()));
    const ModelWork work(*checkpoint, {});
    ReplicaOptions options;
    options.model = entry.path();
    options.isa = Isa::portable;
    options.limits.max_slots = 1;
    options.limits.max_rows = options.limits.max_context = 16;
    cohort::testing::spawn_ranks(1, [&](World& world) {
      const auto rank = require_ok(Rank::load(world, options, {}));
      EXPECT_EQ(work.packed_bytes(), rank->weight_bytes()) << entry.path();
    });
    models++;
  }
  EXPECT_GT(models, 10);
}

// llama3: 3 layers of hidden 64, 4 heads of 16 over 2 KV heads, ffn 80, vocabulary 272, f32, a head
// of its own.
TEST(BenchModelWork, OfADenseModel) {
  const auto checkpoint = require_ok(Checkpoint::open("tests/data/tiny_models/llama3"));
  const ModelWork work(*checkpoint, {.kv_dtype = DType::f16});
  const double layer = 64 * (64 + 32 + 32) + 64 * 64 + 3 * 64 * 80, head = 64 * 272;
  const double key_bytes = 3 * 2 * 2 * 16 * 2;  // layers, K and V, heads, dimensions, f16
  const Demand decode = work.decode(5, 100);
  EXPECT_DOUBLE_EQ(decode.memory_bytes, 4 * (3 * layer + head) + 5 * 100 * key_bytes);
  EXPECT_DOUBLE_EQ(decode.fma_operations, 5 * (2 * (3 * layer + head) + 3 * 100 * 4.0 * 4 * 16));
  EXPECT_EQ(decode.int8_operations, 0);
  const Demand prefill = work.prefill(9);
  EXPECT_DOUBLE_EQ(prefill.fma_operations, 9 * (2 * 3 * layer + 3 * 5 * 4.0 * 4 * 16) + 2 * head);
}

// Attention to a bf16 cache is a product of bf16 in that arithmetic, which a cache of no given type
// is if weights are.
TEST(BenchModelWork, OfAttentionInBf16Arithmetic) {
  const auto checkpoint = require_ok(Checkpoint::open("tests/data/tiny_models/llama3"));
  const auto prefill = [&](const WorkOptions& options) {
    return ModelWork(*checkpoint, options).prefill(9);
  };
  const Demand f32 = prefill({.kv_dtype = DType::bf16});
  const Demand bf16 = prefill({.activations = ActivationMode::bf16, .kv_dtype = DType::bf16});
  EXPECT_DOUBLE_EQ(bf16.bf16_operations, 9 * 3 * 5 * 4.0 * 4 * 16);
  EXPECT_DOUBLE_EQ(bf16.bf16_operations + bf16.fma_operations, f32.fma_operations);
  EXPECT_EQ(prefill({.activations = ActivationMode::bf16}).bf16_operations, 0);
  const Demand chosen = prefill({.activations = ActivationMode::bf16, .choose_kv_dtype = true});
  EXPECT_EQ(chosen.bf16_operations, 0) << "weights are f32";
}

// Mixtral: 2 of 4 experts each; one token has 2, and many have them all.
TEST(BenchModelWork, OfExpertsThoseThatSomebodyChose) {
  const auto checkpoint = require_ok(Checkpoint::open("tests/data/tiny_models/mixtral"));
  const ModelConfig& config = checkpoint->config();
  const ModelWork work(*checkpoint, {});
  double experts = 0;
  for (const WeightInfo& weight : checkpoint->weights())
    if (weight.name.find(".experts.") != std::string::npos)
      experts += double(packed_bytes(weight.dtype, weight.rows, weight.columns));
  ASSERT_GT(experts, 0);
  const double share = double(config.experts.per_token) / double(config.experts.count);
  const double many = work.decode(1000, 0).memory_bytes;
  EXPECT_NEAR(many - work.decode(1, 0).memory_bytes, experts * (1 - share), 1);
  EXPECT_NEAR(many - work.decode(2, 0).memory_bytes, experts * (1 - share) * (1 - share), 1);
}

}  // namespace
}  // namespace cohort::bench
