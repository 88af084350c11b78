// SPDX-License-Identifier: Apache-2.0
#include "parallel/units.h"

#include <gtest/gtest.h>

#include <algorithm>

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

Layout layout(int tp, int pp, std::vector<int> shares = {}, std::vector<int> stage_layers = {}) {
  return {.tp = tp, .pp = pp, .shares = std::move(shares), .stage_layers = std::move(stage_layers)};
}

TEST(UnitsTest, AttentionUnitsAreTheFewestKvHeadsOfWholeBlocks) {
  ModelShape shape = small();
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
  EXPECT_EQ(model_units(shape)->heads_per_unit, 4);
  // One query head of 64 per KV head: four of them make 256 columns.
  shape.heads = 8;
  shape.head_dim = 64;
  EXPECT_EQ(model_units(shape)->heads_per_unit, 4);
  EXPECT_EQ(model_units(shape)->attention, 2);
}

// heads, kv_heads, head_dim, o_block.
ModelShape heads(int64_t query, int64_t kv, int64_t dim, int64_t block) {
  ModelShape shape = small();
  shape.heads = query, shape.kv_heads = kv, shape.head_dim = dim, shape.o_block = block;
  return shape;
}

TEST(UnitsTest, FewKvHeadsAreCutIntoQueryHeads) {
  EXPECT_EQ(model_units(small())->attention, 9);  // of 3 groups of 3 heads
  EXPECT_EQ(model_units(small())->heads_per_unit, 1);
  // The fewest parts of a group that make enough units, and no more.
  EXPECT_EQ(model_units(heads(32, 4, 128, 32))->heads_per_unit, 4);
  EXPECT_EQ(model_units(heads(32, 8, 128, 32))->heads_per_unit, 4);
  EXPECT_EQ(model_units(heads(16, 2, 128, 32))->heads_per_unit, 2);
  EXPECT_EQ(model_units(heads(28, 4, 128, 32))->heads_per_unit, 1);  // groups of 7
  EXPECT_EQ(model_units(heads(12, 2, 128, 32))->heads_per_unit, 1);  // of 6: by 2 and by 3 too few
  EXPECT_EQ(model_units(heads(6, 1, 128, 32))->attention, 6);
  // Units are whole blocks of columns: 4 heads of 64 are one block of 256, as are 2 of 128.
  EXPECT_EQ(model_units(heads(16, 4, 64, 256))->heads_per_unit, 4);
  EXPECT_EQ(model_units(heads(16, 2, 128, 256))->heads_per_unit, 2);
  // Every head has keys of its own.
  EXPECT_EQ(model_units(heads(4, 4, 64, 32))->heads_per_unit, 1);
}

// Squares of a KV head's keys are then added up by units: these have equal parts of its columns.
TEST(UnitsTest, WhereRowsAreNormedAUnitHasAPartOfItsKvHeadsColumns) {
  ModelShape shape = heads(12, 2, 64, 32);  // groups of 6, heads of 64: into 2, but not into 3
  EXPECT_EQ(model_units(shape)->heads_per_unit, 1);
  shape.norms_rows = true;
  EXPECT_EQ(model_units(shape)->heads_per_unit, 3);
}

// Every query head is on one rank, with the KV head that it reads.
TEST(UnitsTest, RanksHaveTheKvHeadsOfTheirQueryHeads) {
  for (const ModelShape& shape : {small(), heads(28, 4, 128, 32), heads(16, 2, 128, 256),
                                  heads(32, 8, 128, 32), heads(8, 8, 64, 256)}) {
    const ModelUnits units = *model_units(shape);
    for (int tp = 1; tp <= std::min(units.attention, units.ffn); tp++) {
      int next = 0;
      const auto cut = partition(shape, layout(tp, 1));
      ASSERT_TRUE(cut.ok());
      for (const UnitRange& range : cut->attention) {
        const auto [query, kv] = heads_of(units, range);
        EXPECT_EQ(query.begin, next);
        EXPECT_GT(query.end, query.begin);
        EXPECT_EQ(kv.begin, query.begin / units.group);
        EXPECT_EQ(kv.end - 1, (query.end - 1) / units.group);
        next = query.end;
      }
      EXPECT_EQ(next, shape.heads);
    }
  }
  // More ranks than KV heads: each of two is on four ranks of eight.
  const ModelUnits units = *model_units(heads(16, 2, 128, 32));
  EXPECT_EQ(heads_of(units, {3, 4}).kv, (UnitRange{0, 1}));
  EXPECT_EQ(heads_of(units, {4, 5}).kv, (UnitRange{1, 2}));
  EXPECT_EQ(heads_of(units, {3, 5}).kv, (UnitRange{0, 2}));
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

TEST(UnitsTest, E10_ImpossibleLayoutsListThePossible) {
  const auto message = [](const Layout& l) { return partition(small(), l).status().message(); };
  EXPECT_NE(message(layout(10, 1)).find("Possible sizes: 1 to 9"), std::string::npos);
  EXPECT_NE(message(layout(0, 1)).find("Possible sizes: 1 to 9"), std::string::npos);
  EXPECT_NE(message(layout(1, 31)).find("Possible: 1 to 30"), std::string::npos);
  EXPECT_NE(message(layout(2, 1, {1})).find("shares must be 2"), std::string::npos);
  EXPECT_NE(message(layout(2, 1, {1, 0})).find("shares must be 2"), std::string::npos);
  EXPECT_NE(message(layout(1, 2, {}, {10, 10})).find("add up to 30"), std::string::npos);
}

TEST(UnitsTest, E10_EveryTensorParallelSizeUpToTheUnitsIsPossible) {
  for (int tp = 1; tp <= 9; tp++)
    for (int pp : {1, 7, 30}) {
      const auto cut = partition(small(), layout(tp, pp));
      ASSERT_TRUE(cut.ok());
      EXPECT_EQ(cut->attention.back().end, 9);
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
