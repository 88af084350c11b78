// SPDX-License-Identifier: Apache-2.0
// The fixed reduction tree over units (docs/arithmetic.md section 3). A row-parallel product is the
// sum of its units' partial products; the sums are added pairwise, level by level, an odd one out
// moving up unchanged. Node (level l, index i) covers units [i * 2^l, min((i + 1) * 2^l, units)).
// The tree depends on the number of units alone, never on who owns them: that is what makes the
// result the same for every number of ranks.
//
//   units  0   1   2   3   4          A rank that owns units 1..4 sends the maximal aligned
//          └─┬─┘   └─┬─┘   │          subtrees within: {1}, {2,3}, {4}. Everyone adds the pieces
//            └───┬───┘     │          of all ranks in the order of the tree.
//                └────┬────┘
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort {

struct UnitRange {
  int begin = 0, end = 0;
  int size() const { return end - begin; }
  friend bool operator==(const UnitRange&, const UnitRange&) = default;
};

// The fewest nodes of the tree over `units` that cover `owned` exactly, in unit order.
std::vector<UnitRange> maximal_subtrees(int units, UnitRange owned);

// One step of adding pieces up: sum[into] = sum[into] + sum[from].
struct TreeAdd {
  int into, from;
  friend bool operator==(const TreeAdd&, const TreeAdd&) = default;
};

// Who sends what, and in which order everything is added. Built once per group; a plain value.
class TreePlan {
 public:
  // owned[r]: the units of rank r; together they must be [0, units) without gap or overlap, in
  // rank order. A rank may own none.
  TreePlan(int units, const std::vector<UnitRange>& owned);

  int units() const { return units_; }
  int ranks() const { return int(pieces_.size()); }
  // Pieces of a rank, as ranges of units. Piece numbers count over all ranks in unit order.
  const std::vector<UnitRange>& pieces(int rank) const { return pieces_[size_t(rank)]; }
  int first_piece(int rank) const { return first_[size_t(rank)]; }
  int total_pieces() const { return total_; }
  // Additions over piece numbers; after all of them the result is in piece 0.
  const std::vector<TreeAdd>& adds() const { return adds_; }

  // sums[p]: count floats of piece p, overwritten; the result is in sums[0]. Bitwise defined.
  void add_up(float* const* sums, int64_t count) const;

 private:
  int units_;
  std::vector<std::vector<UnitRange>> pieces_;
  std::vector<int> first_;
  int total_ = 0;
  std::vector<TreeAdd> adds_;
};

}  // namespace cohort
