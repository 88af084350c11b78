// SPDX-License-Identifier: Apache-2.0
// A reduction whose result is known without a TreePlan: every unit has a vector; the sum is taken
// level by level over the units, by the drawing in docs/arithmetic.md.
#pragma once
#include <cstdint>
#include <random>
#include <vector>

#include "base/unit_tree.h"

namespace cohort {

struct ReductionCase {
  int units = 1;
  std::vector<UnitRange> owned;  // by rank
  int64_t count = 0;
  uint32_t seed = 0;

  // Even, uneven and empty ranges. Draws the same numbers on every rank.
  static ReductionCase random(std::mt19937& random, int ranks, int64_t count);
  std::vector<float> unit(int unit) const;
  // Level by level: neighbours are added, an odd one out moves up.
  std::vector<float> sum(UnitRange range) const;
  std::vector<float> sum() const { return sum({0, units}); }
  // What a rank contributes: the sums of its pieces, back to back.
  std::vector<float> pieces(const TreePlan& plan, int rank) const;
};

}  // namespace cohort
