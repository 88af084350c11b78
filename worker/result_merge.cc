// SPDX-License-Identifier: Apache-2.0
#include "worker/result_merge.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace cohort {

void ResultMerge::expect(const StepPlan& plan) {
  Pending pending;
  pending.result.step = plan.step;
  for (const StepEntry& entry : plan.entries)
    pending.places.emplace(entry.slot, pending.places.size());
  // Plans may start anywhere: a record of them need not begin with the first.
  if (pending_.empty()) std::ranges::fill(answered_, plan.step - 1);
  pending_.push_back(std::move(pending));
}

Status ResultMerge::add(int dp, StepResult result) {
  COHORT_CHECK_LT(dp, limits_.dp);
  uint64_t& last = answered_[size_t(dp)];
  const auto pending =
      std::ranges::find(pending_, last + 1, [](const Pending& p) { return p.result.step; });
  if (pending == pending_.end())
    return internal_error(concat("dp group ", dp, " answered step ", result.step,
                                 ", but all plans were answered by it"));
  if (result.step != last + 1)
    return internal_error(concat("dp group ", dp, " answered step ", result.step, " where ",
                                 last + 1, " was expected"));
  for (const SlotResult& slot : result.slots) {
    if (!pending->places.contains(slot.slot) || dp_of(slot.slot, limits_) != dp)
      return internal_error(concat("dp group ", dp, " answered step ", result.step, " with slot ",
                                   slot.slot, ", which was not its to compute"));
  }
  last = result.step;
  StepResult& whole = pending->result;
  std::ranges::move(result.slots, std::back_inserter(whole.slots));
  whole.compute_seconds = std::max(whole.compute_seconds, result.compute_seconds);
  ++pending->answers;
  return Status::ok_status();
}

std::optional<StepResult> ResultMerge::take() {
  if (pending_.empty() || pending_.front().answers < limits_.dp) return std::nullopt;
  Pending done = std::move(pending_.front());
  pending_.pop_front();
  std::ranges::stable_sort(done.result.slots, {},
                           [&](const SlotResult& slot) { return done.places.at(slot.slot); });
  return std::move(done.result);
}

std::vector<int> ResultMerge::missing() const {
  std::vector<int> groups;
  if (pending_.empty()) return groups;
  for (int dp = 0; dp < limits_.dp; ++dp)
    if (answered_[size_t(dp)] < pending_.front().result.step) groups.push_back(dp);
  return groups;
}

}  // namespace cohort
