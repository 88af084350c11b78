// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "parallel/experts.h"

namespace cohort {
namespace {

// Contiguous runs of [begin, end), of random sizes, none of which must have an expert.
std::vector<UnitRange> random_runs(int ranks, int begin, int end, std::mt19937& random) {
  std::vector<int> cuts{begin, end};
  for (int i = 1; i < ranks; i++)
    cuts.push_back(std::uniform_int_distribution<int>(begin, end)(random));
  std::sort(cuts.begin(), cuts.end());
  std::vector<UnitRange> runs;
  for (size_t i = 1; i < cuts.size(); i++) runs.push_back({cuts[i - 1], cuts[i]});
  return runs;
}

TEST(ExpertPlacementTest, OwnersAndNumbersFollowTheRuns) {
  const ExpertPlacement p(10, {{2, 5}, {5, 5}, {5, 9}});
  EXPECT_EQ(p.ranks(), 3);
  EXPECT_EQ(p.column(), (UnitRange{2, 9}));
  EXPECT_EQ(p.owner(1), -1);
  EXPECT_EQ(p.owner(2), 0);
  EXPECT_EQ(p.owner(4), 0);
  EXPECT_EQ(p.owner(5), 2);  // not rank 1, which owns none
  EXPECT_EQ(p.owner(8), 2);
  EXPECT_EQ(p.owner(9), -1);
  EXPECT_EQ(p.held(0), (std::vector<int>{2, 3, 4}));
  EXPECT_TRUE(p.held(1).empty());
  EXPECT_EQ(p.local(2), (std::vector<int32_t>{-1, -1, -1, -1, -1, 0, 1, 2, 3, -1}));
  EXPECT_EQ(p.place(3, 2, 7), 0);
  EXPECT_EQ(p.place(9, 2, 7), -1);
}

TEST(ExpertPlacementTest, ACopyTakesTurnsAndServesItsOwnGroupAlone) {
  ExpertPlacement p(8, {{0, 2}, {2, 4}, {4, 6}, {6, 8}});
  EXPECT_TRUE(p.add(5, 0));
  EXPECT_FALSE(p.add(5, 0));
  EXPECT_FALSE(p.add(5, 2));  // the owner has it
  EXPECT_EQ(p.held(0), (std::vector<int>{0, 1, 5}));
  EXPECT_EQ(p.local(0)[5], 2);
  for (int row = 0; row < 6; row++) {
    EXPECT_EQ(p.place(5, 0, row), 0);
    EXPECT_EQ(p.place(5, 2, row), 2);
    EXPECT_EQ(p.place(5, 1, row), row % 2 == 0 ? 0 : 2);
  }
  EXPECT_FALSE(p.drop(5, 2));  // the owner keeps it
  EXPECT_FALSE(p.drop(5, 3));
  EXPECT_TRUE(p.drop(5, 0));
  EXPECT_EQ(p.place(5, 0, 0), 2);
  EXPECT_EQ(p.local(0)[5], -1);
}

TEST(ExpertPlacementTest, WhatIsNotInTheColumnChangesNothing) {
  ExpertPlacement p(8, {{2, 4}, {4, 6}});
  for (const int expert : {-1, 0, 1, 6, 7, 8}) {
    EXPECT_FALSE(p.add(expert, 0)) << expert;
    EXPECT_FALSE(p.drop(expert, 0)) << expert;
  }
  EXPECT_FALSE(p.add(2, 2));
  EXPECT_FALSE(p.add(4, -1));
  EXPECT_EQ(p.held(0), (std::vector<int>{2, 3}));
  EXPECT_EQ(p.held(1), (std::vector<int>{4, 5}));
}

using Pairs = std::set<std::pair<int, int>>;  // (expert, dp rank that has it)

void expect_same(const ExpertPlacement& p, const Pairs& have, const std::vector<UnitRange>& owned) {
  for (int d = 0; d < p.ranks(); d++) {
    std::vector<int> held;
    for (int e = 0; e < p.experts(); e++) {
      const UnitRange own = owned[size_t(d)];
      const bool here = have.count({e, d}) > 0, in_column = p.owner(e) >= 0;
      ASSERT_EQ(p.owner(e) == d, e >= own.begin && e < own.end);
      ASSERT_EQ(in_column, e >= p.column().begin && e < p.column().end);
      ASSERT_EQ(p.local(d)[size_t(e)], here ? int32_t(held.size()) : -1);
      if (here) held.push_back(e);
      for (int row = 0; row < 5; row++) {
        const int at = p.place(e, d, row);
        ASSERT_EQ(at >= 0, in_column);
        ASSERT_TRUE(!in_column || have.count({e, at}));
        ASSERT_TRUE(!here || at == d);
      }
    }
    ASSERT_EQ(p.held(d), held);
  }
}

// Against a plain set.
TEST(ExpertPlacementTest, RandomCopiesComeAndGo) {
  std::mt19937 random(1);
  const auto upto = [&](int n) { return std::uniform_int_distribution<int>(0, n)(random); };
  for (int world = 0; world < 50; world++) {
    const int ranks = 1 + upto(3), experts = 1 + upto(19);
    const int begin = upto(experts), end = begin + upto(experts - begin);
    const std::vector<UnitRange> owned = random_runs(ranks, begin, end, random);
    ExpertPlacement p(experts, owned);
    Pairs have;
    for (int d = 0; d < ranks; d++)
      for (int e = owned[size_t(d)].begin; e < owned[size_t(d)].end; e++) have.insert({e, d});
    for (int change = 0; change < 60; change++) {
      const int e = upto(experts - 1), d = upto(ranks - 1);
      const bool there = have.count({e, d}) > 0, in_column = e >= begin && e < end;
      if (upto(2) > 0) {
        ASSERT_EQ(p.add(e, d), in_column && !there);
        if (in_column) have.insert({e, d});
      } else {
        const UnitRange own = owned[size_t(d)];
        const bool copy = there && (e < own.begin || e >= own.end);
        ASSERT_EQ(p.drop(e, d), copy);
        if (copy) have.erase({e, d});
      }
    }
    expect_same(p, have, owned);
  }
}

}  // namespace
}  // namespace cohort
