// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "parallel/experts.h"

namespace cohort {

ExpertPlacement::ExpertPlacement(int experts, std::vector<UnitRange> owned)
    : experts_(experts),
      owned_(std::move(owned)),
      holders_(size_t(experts)),
      held_(owned_.size()),
      local_(owned_.size()) {
  COHORT_CHECK(!owned_.empty());
  COHORT_CHECK(column().begin >= 0 && column().end <= experts);
  for (int dp = 0; dp < ranks(); dp++) {
    const UnitRange range = owned_[size_t(dp)];
    COHORT_CHECK_LE(range.begin, range.end);
    if (dp > 0) COHORT_CHECK_EQ(range.begin, owned_[size_t(dp - 1)].end);
    for (int expert = range.begin; expert < range.end; expert++) {
      holders_[size_t(expert)] = {dp};
      held_[size_t(dp)].push_back(expert);
    }
    number(dp);
  }
}

void ExpertPlacement::number(int dp) {
  std::vector<int32_t>& local = local_[size_t(dp)];
  local.assign(size_t(experts_), -1);
  for (size_t i = 0; i < held(dp).size(); i++) local[size_t(held(dp)[i])] = int32_t(i);
}

bool ExpertPlacement::add(int expert, int dp) {
  if (!in_column(expert) || dp < 0 || dp >= ranks()) return false;
  if (local(dp)[size_t(expert)] >= 0) return false;
  std::vector<int>& holders = holders_[size_t(expert)];
  holders.insert(std::lower_bound(holders.begin(), holders.end(), dp), dp);
  std::vector<int>& held = held_[size_t(dp)];
  held.insert(std::lower_bound(held.begin(), held.end(), expert), expert);
  number(dp);
  return true;
}

bool ExpertPlacement::drop(int expert, int dp) {
  if (!in_column(expert) || dp < 0 || dp >= ranks()) return false;
  if (local(dp)[size_t(expert)] < 0 || owner(expert) == dp) return false;
  std::erase(holders_[size_t(expert)], dp);
  std::erase(held_[size_t(dp)], expert);
  number(dp);
  return true;
}

int ExpertPlacement::owner(int expert) const {
  if (!in_column(expert)) return -1;
  const auto after = std::upper_bound(owned_.begin(), owned_.end(), expert,
                                      [](int e, UnitRange range) { return e < range.end; });
  return int(after - owned_.begin());
}

int ExpertPlacement::place(int expert, int dp, int64_t row) const {
  if (!in_column(expert)) return -1;
  if (local(dp)[size_t(expert)] >= 0) return dp;
  const std::vector<int>& holders = holders_[size_t(expert)];
  return holders[size_t(row) % holders.size()];
}

}  // namespace cohort
