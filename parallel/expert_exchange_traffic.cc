// SPDX-License-Identifier: Apache-2.0
#include "parallel/expert_exchange_traffic.h"

#include <algorithm>

#include "base/check.h"

namespace cohort {

int64_t most_pairs(const ExpertPlacement& placement, int dp, int per_token) {
  return std::min<int64_t>(per_token, int64_t(placement.held(dp).size()));
}

bool sends_all(const ExchangeShape& shape, std::span<const int64_t> group_rows) {
  return *std::max_element(group_rows.begin(), group_rows.end()) <= shape.few_rows;
}

ExchangeTraffic exchange_traffic(const ExpertPlacement& placement, const ExchangeShape& shape,
                                 int dp, const ExchangeCounts& counts) {
  const int64_t row = shape.hidden * int64_t(sizeof(float)), own = counts.group_rows[size_t(dp)];
  const int64_t most_here = most_pairs(placement, dp, shape.per_token);
  ExchangeTraffic bytes;
  if (std::all_of(counts.group_rows.begin(), counts.group_rows.end(),
                  [](int64_t rows) { return rows == 0; }))
    return bytes;
  for (int r = 0; r < placement.ranks(); r++) {
    if (r == dp) continue;
    const int64_t most = most_pairs(placement, r, shape.per_token);
    const int64_t slot = slot_words(shape.hidden, most) * int64_t(sizeof(float));
    const int64_t rows_to = counts.rows_to[size_t(r)], pairs = counts.pairs_for[size_t(r)];
    bytes.fixed += (most > 0 ? own * slot : 0) + counts.group_rows[size_t(r)] * most_here * row;
    bytes.exact += int64_t(sizeof(int32_t)) + rows_to * slot + pairs * row;
    bytes.minimum += rows_to * row + pairs * row;
  }
  bytes.sent = sends_all(shape, counts.group_rows) ? bytes.fixed : bytes.exact;
  return bytes;
}

}  // namespace cohort
