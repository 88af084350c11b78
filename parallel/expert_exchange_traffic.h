// SPDX-License-Identifier: Apache-2.0
// How much moves between the dp ranks of a column. To another rank a token's row travels as one
// slot: f32 [hidden], then the numbers that its experts have there, i32 [most pairs], ended by -1
// where there are fewer. Back comes f32 [hidden] for each of them, slot by slot.
#pragma once
#include <span>

#include "parallel/experts.h"

namespace cohort {

// Experts of dp rank `dp` that one token can have at most.
int64_t most_pairs(const ExpertPlacement& placement, int dp, int per_token);
// 4-byte words of a slot.
inline int64_t slot_words(int64_t hidden, int64_t most_pairs) { return hidden + most_pairs; }
// Whether all that there could be is sent. From what all ranks of the stage know alike, so that
// ranks of different columns, too, wait equally often and take turns between micro-batches alike.
bool sends_all(const ExchangeShape& shape, std::span<const int64_t> group_rows);

// Of one rank in one layer, by dp rank; its own entries do not count.
struct ExchangeCounts {
  std::span<const int64_t> group_rows;  // tokens of each group
  std::span<const int64_t> rows_to;     // tokens of this rank's group that need experts of another
  std::span<const int64_t> pairs_for;   // (token, expert) pairs of another group computed here
};
ExchangeTraffic exchange_traffic(const ExpertPlacement& placement, const ExchangeShape& shape,
                                 int dp, const ExchangeCounts& counts);

}  // namespace cohort
