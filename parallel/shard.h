// SPDX-License-Identifier: Apache-2.0
// Which units are whose: pure arithmetic, asked by the loader and the layers alike, so that they
// cannot disagree. Counts that do not divide and ranks of unequal strength are ordinary.
#pragma once
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unit_tree.h"

namespace cohort {

// Cuts [0, units) into one contiguous range per weight, in proportion to the weights (each
// positive). Where a cut belongs half way between two units it goes to the even one, at which
// larger subtrees (base/unit_tree.h) begin and end, or, by `Halves::up`, to the later. Every rank
// gets at least one unit where units >= ranks; with fewer units the first ranks get one each and
// the others none.
enum class Halves { even, up };
std::vector<UnitRange> shard(int units, const std::vector<int>& weights,
                             Halves halves = Halves::even);

// "2:1" or "2,1" -> {2, 1}: the part of each rank. least: what each number may be.
Result<std::vector<int>> parse_shares(const std::string& text, int least = 1);

// Rows or columns of a range of units that are `width` wide, of `total` in all: the last unit of
// all may be narrower.
struct Slice {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  friend bool operator==(const Slice&, const Slice&) = default;
};
Slice slice_of(UnitRange units, int64_t width, int64_t total);

}  // namespace cohort
