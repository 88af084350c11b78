// SPDX-License-Identifier: Apache-2.0
#include "base/unit_tree.h"

#include <algorithm>

#include "base/check.h"

namespace cohort {

std::vector<UnitRange> maximal_subtrees(int units, UnitRange owned) {
  COHORT_CHECK_LE(0, owned.begin);
  COHORT_CHECK_LE(owned.begin, owned.end);
  COHORT_CHECK_LE(owned.end, units);
  std::vector<UnitRange> pieces;
  for (int at = owned.begin; at < owned.end;) {
    // The widest node that starts here: aligned, and (clipped to the last unit) within `owned`.
    int width = 1;
    while (at % (2 * width) == 0 && at + width < units &&
           std::min(at + 2 * width, units) <= owned.end)
      width *= 2;
    const int end = std::min(at + width, units);
    pieces.push_back({at, end});
    at = end;
  }
  return pieces;
}

TreePlan::TreePlan(int units, const std::vector<UnitRange>& owned) : units_(units) {
  std::vector<int> start;  // first unit of each piece
  int next = 0;
  for (const UnitRange& range : owned) {
    COHORT_CHECK_EQ(range.begin, next);
    next = range.end;
    first_.push_back(total_);
    pieces_.push_back(maximal_subtrees(units, range));
    for (const UnitRange& piece : pieces_.back()) start.push_back(piece.begin);
    total_ = int(start.size());
  }
  COHORT_CHECK_EQ(next, units);
  // A piece is a whole node, so at each level the pieces whose starts share a parent are siblings.
  std::vector<int> live(start.size());
  for (size_t i = 0; i < live.size(); i++) live[i] = int(i);
  for (int64_t width = 2; live.size() > 1; width *= 2) {
    std::vector<int> up;
    for (int piece : live) {
      const bool sibling =
          !up.empty() && start[size_t(up.back())] / width == start[size_t(piece)] / width;
      if (sibling)
        adds_.push_back({up.back(), piece});
      else
        up.push_back(piece);
    }
    live = std::move(up);
  }
}

void TreePlan::add_up(float* const* sums, int64_t count) const {
  for (const TreeAdd& add : adds_) {
    float* into = sums[add.into];
    const float* from = sums[add.from];
    for (int64_t i = 0; i < count; i++) into[i] = into[i] + from[i];
  }
}

}  // namespace cohort
