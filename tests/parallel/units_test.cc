// SPDX-License-Identifier: Apache-2.0
#include "parallel/units.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

// SmolLM2-135M.
ModelShape small() {
  return {.layers = 30,
          .heads = 9,
          .kv_heads = 3,
          .head_dim = 64,
          .ffn = 1536,
          .vocab = 49152,
          .o_block = 32,
          .down_block = 32};
}

TEST(UnitsTest, AttentionUnitsAreTheFewestKvHeadsOfWholeBlocks) {
  ModelShape shape = small();
  EXPECT_EQ(model_units(shape)->attention, 3);  // 192 columns each
  shape.o_block = 256;  // not even all heads make a multiple of 256 columns: 576
  EXPECT_EQ(model_units(shape).status().code(), Code::kInvalidArgument);
  // Llama-3 8B with K-quants: 4 query heads of 128 make 512 columns.
  shape = {.layers = 32,
           .heads = 32,
           .kv_heads = 8,
           .head_dim = 128,
           .ffn = 14336,
           .vocab = 128256,
           .o_block = 256,
           .down_block = 256};
  EXPECT_EQ(model_units(shape)->kv_heads_per_unit, 1);
  // One query head of 64 per KV head: four of them make 256 columns.
  shape.heads = 8;
  shape.head_dim = 64;
  EXPECT_EQ(model_units(shape)->kv_heads_per_unit, 4);
  EXPECT_EQ(model_units(shape)->attention, 2);
}

TEST(UnitsTest, FeedForwardUnitsArePowersOfTwoWherePossible) {
  ModelShape shape = small();
  EXPECT_EQ(model_units(shape)->ffn, 16);  // 1536 / 32 = 48 = 16 * 3
  EXPECT_EQ(model_units(shape)->ffn_columns, 96);
  shape.ffn = 14336;
  shape.down_block = 256;  // 56 = 8 * 7
  EXPECT_EQ(model_units(shape)->ffn, 8);
  shape.ffn = 11008;  // 43 blocks, a prime
  EXPECT_EQ(model_units(shape)->ffn, 43);
  shape.ffn = 32768;  // 128 blocks
  EXPECT_EQ(model_units(shape)->ffn, 32);
  shape.ffn = 100;
  EXPECT_EQ(model_units(shape).status().code(), Code::kInvalidArgument);
}

Layout layout(int tp, int pp, std::vector<int> shares = {}, std::vector<int> stage_layers = {}) {
  return {.tp = tp, .pp = pp, .shares = std::move(shares), .stage_layers = std::move(stage_layers)};
}

TEST(UnitsTest, E10_ImpossibleLayoutsListThePossible) {
  const auto message = [](const Layout& l) { return partition(small(), l).status().message(); };
  EXPECT_NE(message(layout(4, 1)).find("Possible sizes: 1 to 3"), std::string::npos);
  EXPECT_NE(message(layout(0, 1)).find("Possible sizes: 1 to 3"), std::string::npos);
  EXPECT_NE(message(layout(1, 31)).find("Possible: 1 to 30"), std::string::npos);
  EXPECT_NE(message(layout(2, 1, {1})).find("shares must be 2"), std::string::npos);
  EXPECT_NE(message(layout(2, 1, {1, 0})).find("shares must be 2"), std::string::npos);
  EXPECT_NE(message(layout(1, 2, {}, {10, 10})).find("add up to 30"), std::string::npos);
}

TEST(UnitsTest, E10_EveryTensorParallelSizeUpToTheUnitsIsPossible) {
  for (int tp = 1; tp <= 3; tp++)
    for (int pp : {1, 7, 30}) {
      const auto cut = partition(small(), layout(tp, pp));
      ASSERT_TRUE(cut.ok());
      EXPECT_EQ(cut->attention.back().end, 3);
      EXPECT_EQ(cut->ffn.back().end, 16);
      EXPECT_EQ(cut->vocab.back().end, 192);  // of 256 rows
      EXPECT_EQ(int(cut->layers.size()), pp);
      EXPECT_EQ(cut->layers.back().end, 30);
    }
}

TEST(MeshTest, RanksOfAStageAreNeighbours) {
  const Mesh mesh(3, 2);
  EXPECT_EQ(mesh.tp_group({.pp = 1}), (std::vector<int>{3, 4, 5}));
  EXPECT_EQ(mesh.pp_group({.tp = 1}), (std::vector<int>{1, 4}));
  EXPECT_EQ(mesh.sampler(0), 3);
  for (int r = 0; r < mesh.ranks(); r++) EXPECT_EQ(mesh.rank(mesh.coordinates(r)), r);
}

}  // namespace
}  // namespace cohort
