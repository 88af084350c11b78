// SPDX-License-Identifier: Apache-2.0
#include "parallel/shard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace cohort {
namespace {

TEST(ShardTest, CutsInProportionToTheWeights) {
  EXPECT_EQ(shard(12, {1, 1, 1}), (std::vector<UnitRange>{{0, 4}, {4, 8}, {8, 12}}));
  EXPECT_EQ(shard(12, {2, 1}), (std::vector<UnitRange>{{0, 8}, {8, 12}}));
  EXPECT_EQ(shard(3, {1, 1}), (std::vector<UnitRange>{{0, 2}, {2, 3}}));
  EXPECT_EQ(shard(5, {1}), (std::vector<UnitRange>{{0, 5}}));
}

// Two maximal subtrees of 9 in place of three.
TEST(ShardTest, ACutHalfWayGoesToTheEvenUnit) {
  EXPECT_EQ(shard(9, {1, 1}), (std::vector<UnitRange>{{0, 4}, {4, 9}}));
  EXPECT_EQ(shard(11, {1, 1}), (std::vector<UnitRange>{{0, 6}, {6, 11}}));
  EXPECT_EQ(shard(6, {1, 1, 1, 1}), (std::vector<UnitRange>{{0, 2}, {2, 3}, {3, 4}, {4, 6}}));
  EXPECT_EQ(shard(9, {1, 1}, Halves::up), (std::vector<UnitRange>{{0, 5}, {5, 9}}));
}

TEST(ShardTest, EveryRankHasAUnitEvenOfSmallWeight) {
  EXPECT_EQ(shard(3, {1000, 1, 1}), (std::vector<UnitRange>{{0, 1}, {1, 2}, {2, 3}}));
  EXPECT_EQ(shard(10, {1, 1000, 1}), (std::vector<UnitRange>{{0, 1}, {1, 9}, {9, 10}}));
}

TEST(ShardTest, WithFewerUnitsThanRanksTheFirstHaveOneEach) {
  EXPECT_EQ(shard(2, {1, 1, 1}), (std::vector<UnitRange>{{0, 1}, {1, 2}, {2, 2}}));
}

TEST(ShardTest, IsAlwaysContiguousCompleteAndNearTheExactShare) {
  for (int units = 1; units <= 40; units++)
    for (int ranks = 1; ranks <= units; ranks++) {
      std::vector<int> weights;
      for (int r = 0; r < ranks; r++) weights.push_back(1 + (r * 7 + units) % 5);
      const int total = std::accumulate(weights.begin(), weights.end(), 0);
      const auto ranges = shard(units, weights);
      int next = 0;
      for (int r = 0; r < ranks; r++) {
        EXPECT_EQ(ranges[size_t(r)].begin, next);
        EXPECT_GE(ranges[size_t(r)].size(), 1);
        next = ranges[size_t(r)].end;
        // Where there is plenty for everybody, cuts are the nearest to the exact ones.
        if (units >= 10 * ranks) {
          EXPECT_LE(std::abs(ranges[size_t(r)].size() - double(units) * weights[size_t(r)] / total),
                    1.0);
        }
      }
      EXPECT_EQ(next, units);
    }
}

TEST(ShardTest, ParsesShares) {
  EXPECT_EQ(*parse_shares("2:1"), (std::vector<int>{2, 1}));
  EXPECT_EQ(*parse_shares("7"), std::vector<int>{7});
  for (const char* bad : {"", ":", "2:", ":2", "0:1", "-1:2", "a", "1:2x", "1;2", "99999999999:1"})
    EXPECT_EQ(parse_shares(bad).status().code(), Code::kInvalidArgument) << bad;
}

TEST(ShardTest, SlicesEndWithTheMatrix) {
  EXPECT_EQ(slice_of({1, 3}, 16, 203), (Slice{16, 48}));
  EXPECT_EQ(slice_of({12, 13}, 16, 203), (Slice{192, 203}));
}

}  // namespace
}  // namespace cohort
