// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fair_queue.h"

#include <algorithm>

#include "base/check.h"

namespace cohort {

namespace {
constexpr double kOutputWeight = 2;
// Tenants that are remembered; beyond, history is forgotten, which costs fairness only.
constexpr size_t kMostCounters = 100'000;
}  // namespace

void FairQueue::push(Entry entry) {
  entry.priority = std::clamp(entry.priority, -kLowestBand, kLowestBand);
  lift(entry.tenant);
  lanes_[Key{entry.priority, entry.tenant}].push_back(std::move(entry));
  ++size_;
}

// A tenant that comes back starts level with those that wait: credit is not saved up.
void FairQueue::lift(const std::string& tenant) {
  std::optional<double> least;
  for (const auto& [key, lane] : lanes_) {
    if (key.tenant == tenant) return;
    const double value = counter(key.tenant);
    least = least ? std::min(*least, value) : value;
  }
  if (!least) return;
  if (counters_.size() >= kMostCounters) counters_.clear();
  double& own = counters_[tenant];
  own = std::max(own, *least);
}

double FairQueue::counter(const std::string& tenant) const {
  const auto at = counters_.find(tenant);
  return at == counters_.end() ? 0 : at->second;
}

FairQueue::Lanes::const_iterator FairQueue::best(TimePoint now) const {
  auto best = lanes_.end();
  int best_band = 0;
  for (auto lane = lanes_.begin(); lane != lanes_.end(); ++lane) {
    // Entries of a lane arrived in order, so its first one has aged most.
    const auto age = (now - lane->second.front().arrived) / kBandAge;
    const int band = std::max(
        -kLowestBand, lane->first.band - static_cast<int>(std::min<int64_t>(age, 2 * kLowestBand)));
    const bool better =
        best == lanes_.end() || band < best_band ||
        (band == best_band && counter(lane->first.tenant) < counter(best->first.tenant));
    if (better) {
      best = lane;
      best_band = band;
    }
  }
  return best;
}

const FairQueue::Entry* FairQueue::peek(TimePoint now) const {
  const auto lane = best(now);
  return lane == lanes_.end() ? nullptr : &lane->second.front();
}

FairQueue::Entry FairQueue::pop(TimePoint now) {
  const auto at = best(now);
  COHORT_CHECK(at != lanes_.end());
  const auto lane = lanes_.find(at->first);
  Entry entry = std::move(lane->second.front());
  lane->second.pop_front();
  if (lane->second.empty()) lanes_.erase(lane);
  --size_;
  counters_[entry.tenant] += static_cast<double>(entry.prompt_tokens);
  return entry;
}

bool FairQueue::erase(uint64_t sequence) {
  for (auto lane = lanes_.begin(); lane != lanes_.end(); ++lane) {
    auto& entries = lane->second;
    const auto at = std::find_if(entries.begin(), entries.end(),
                                 [&](const Entry& e) { return e.sequence == sequence; });
    if (at == entries.end()) continue;
    entries.erase(at);
    if (entries.empty()) lanes_.erase(lane);
    --size_;
    return true;
  }
  return false;
}

void FairQueue::charge_output(const std::string& tenant, int64_t tokens) {
  counters_[tenant] += kOutputWeight * static_cast<double>(tokens);
}

}  // namespace cohort
