// SPDX-License-Identifier: Apache-2.0
// Adds pieces up in the order of a TreePlan without changing them: peers may read the same memory.
// One thread at a time; keeps its scratch memory between calls.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/unit_tree.h"

namespace cohort {

class TreeSum {
 public:
  // out[i] = the sum of pieces[p][i] over all p in plan's order, for i < count; zeros if the plan
  // has no pieces. pieces.size() == plan.total_pieces(). out must not overlap any piece.
  void run(const TreePlan& plan, std::span<const float* const> pieces, float* out, int64_t count);

 private:
  std::vector<float> scratch_;
  std::vector<const float*> current_;
};

}  // namespace cohort
