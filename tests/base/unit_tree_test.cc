// SPDX-License-Identifier: Apache-2.0
#include "base/unit_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

namespace cohort {
namespace {

// The definition, level by level: nodes are added in neighbouring pairs, an odd one out moves up
// unchanged. Sums are written as text, which shows every order.
std::string sum_of(std::vector<std::string> level) {
  while (level.size() > 1) {
    std::vector<std::string> above;
    for (size_t i = 0; i + 1 < level.size(); i += 2)
      above.push_back("(" + level[i] + "+" + level[i + 1] + ")");
    if (level.size() % 2) above.push_back(level.back());
    level = above;
  }
  return level.empty() ? "" : level[0];
}

std::string sum_of_units(int begin, int end) {
  std::vector<std::string> units;
  for (int u = begin; u < end; u++) units.push_back(std::to_string(u));
  return sum_of(units);
}

// All nodes of the tree, from its definition.
std::vector<UnitRange> nodes_of(int units) {
  std::vector<UnitRange> nodes;
  for (int width = 1;; width *= 2) {
    for (int begin = 0; begin < units; begin += width)
      nodes.push_back({begin, std::min(begin + width, units)});
    if (width >= units) return nodes;
  }
}

// The fewest nodes that cover a range, by trying all (dynamic programming over the end).
int fewest(int units, UnitRange owned) {
  std::vector<int> count(size_t(owned.end) + 1, 1 << 20);
  count[size_t(owned.begin)] = 0;
  for (int at = owned.begin; at < owned.end; at++)
    for (const UnitRange& node : nodes_of(units))
      if (node.begin == at && node.end <= owned.end)
        count[size_t(node.end)] = std::min(count[size_t(node.end)], count[size_t(at)] + 1);
  return count[size_t(owned.end)];
}

// Calls visit with every way to cut [0, units) into `ranks` ranges, empty ones included.
void for_each_split(int units, int ranks,
                    const std::function<void(const std::vector<UnitRange>&)>& visit) {
  std::vector<UnitRange> owned;
  const std::function<void(int)> cut = [&](int begin) {
    if (int(owned.size()) == ranks - 1) {
      owned.push_back({begin, units});
      visit(owned);
      owned.pop_back();
      return;
    }
    for (int end = begin; end <= units; end++) {
      owned.push_back({begin, end});
      cut(end);
      owned.pop_back();
    }
  };
  cut(0);
}

TEST(UnitTree, MaximalSubtreesAreTheFewestNodesInOrder) {
  for (int units = 1; units <= 17; units++) {
    const std::vector<UnitRange> nodes = nodes_of(units);
    for (int begin = 0; begin <= units; begin++)
      for (int end = begin; end <= units; end++) {
        const std::vector<UnitRange> pieces = maximal_subtrees(units, {begin, end});
        int at = begin;
        for (const UnitRange& piece : pieces) {
          EXPECT_EQ(piece.begin, at);
          EXPECT_NE(std::find(nodes.begin(), nodes.end(), piece), nodes.end());
          at = piece.end;
        }
        EXPECT_EQ(at, end);
        EXPECT_EQ(int(pieces.size()), fewest(units, {begin, end}))
            << units << " units, [" << begin << ", " << end << ")";
      }
  }
}

TEST(UnitTree, ExampleOfTheDrawing) {
  const std::vector<UnitRange> expected{{1, 2}, {2, 4}, {4, 5}};
  EXPECT_EQ(maximal_subtrees(5, {1, 5}), expected);
}

TEST(UnitTree, EverySplitOfUpToTwelveUnitsAddsInTheSameOrder) {
  for (int units = 1; units <= 12; units++) {
    const std::string expected = sum_of_units(0, units);
    for (int ranks = 1; ranks <= 4; ranks++)
      for_each_split(units, ranks, [&](const std::vector<UnitRange>& owned) {
        const TreePlan plan(units, owned);
        ASSERT_EQ(plan.ranks(), ranks);
        std::vector<std::string> sums;
        for (int r = 0; r < ranks; r++) {
          ASSERT_EQ(plan.first_piece(r), int(sums.size()));
          for (const UnitRange& piece : plan.pieces(r))
            sums.push_back(sum_of_units(piece.begin, piece.end));
        }
        ASSERT_EQ(plan.total_pieces(), int(sums.size()));
        for (const TreeAdd& add : plan.adds())
          sums[size_t(add.into)] =
              "(" + sums[size_t(add.into)] + "+" + sums[size_t(add.from)] + ")";
        ASSERT_EQ(sums[0], expected);
      });
  }
}

TEST(UnitTree, AddUpGivesTheBitsOfTheTree) {
  // 2^24 + 1 is no float: the order decides the result. Tree: ((a+b)+(c+d))+e.
  const float units[5][2] = {{0x1p24f, 1}, {1, 2}, {1, 3}, {1, 4}, {1, 5}};
  const TreePlan plan(5, {{0, 1}, {1, 5}});  // pieces {0}, {1}, {2,3}, {4}
  ASSERT_EQ(plan.total_pieces(), 4);
  float pieces[4][2];
  for (int i = 0; i < 2; i++) {
    pieces[0][i] = units[0][i];
    pieces[1][i] = units[1][i];
    pieces[2][i] = units[2][i] + units[3][i];
    pieces[3][i] = units[4][i];
  }
  float* sums[] = {pieces[0], pieces[1], pieces[2], pieces[3]};
  plan.add_up(sums, 2);
  // 2^24 + 1 is a tie and gives 2^24; + 2 is exact; + 1 is a tie again and gives 2^24 + 4. From
  // left to right it would stay 2^24.
  EXPECT_EQ(pieces[0][0], 0x1p24f + 4);
  EXPECT_EQ(pieces[0][1], 15.0f);
}

TEST(UnitTree, NoUnitsHaveNoPieces) {
  const TreePlan plan(0, {{0, 0}, {0, 0}});
  EXPECT_EQ(plan.total_pieces(), 0);
  EXPECT_TRUE(plan.adds().empty());
}

TEST(UnitTreeDeathTest, SplitsWithAGapAreProgrammerErrors) {
  EXPECT_DEATH(TreePlan(4, {{0, 1}, {2, 4}}), "check failed");
  EXPECT_DEATH(TreePlan(4, {{0, 1}, {1, 3}}), "check failed");
  EXPECT_DEATH(maximal_subtrees(4, {0, 5}), "check failed");
}

}  // namespace
}  // namespace cohort
