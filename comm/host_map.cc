// SPDX-License-Identifier: Apache-2.0
#include "comm/host_map.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/check.h"

namespace cohort {
namespace {

// The units of each host. A rank's pieces are adjacent, and so are those of a host's ranks.
std::vector<UnitRange> units_of_hosts(const TreePlan& plan, const HostMap& hosts) {
  std::vector<UnitRange> owned;
  int next = 0;
  for (int h = 0; h < hosts.hosts(); h++) {
    owned.push_back({next, next});
    for (int r : hosts.members(h))
      if (!plan.pieces(r).empty()) next = plan.pieces(r).back().end;
    owned.back().end = next;
  }
  return owned;
}

}  // namespace

std::optional<HostMap> HostMap::make(const std::vector<std::string>& hosts) {
  HostMap map;
  std::set<std::string> seen;
  for (size_t r = 0; r < hosts.size(); r++) {
    if (r > 0 && hosts[r] == hosts[r - 1]) continue;
    if (!seen.insert(hosts[r]).second) return std::nullopt;
    map.first_.push_back(int(r));
  }
  map.first_.push_back(int(hosts.size()));
  return map;
}

int HostMap::host_of(int rank) const {
  return int(std::upper_bound(first_.begin(), first_.end(), rank) - first_.begin()) - 1;
}

int HostMap::rails() const {
  int least = ranks();
  for (int h = 0; h < hosts(); h++) least = std::min(least, size(h));
  return least;
}

std::vector<int> HostMap::rail(int i) const {
  std::vector<int> ranks;
  for (int h = 0; h < hosts(); h++) ranks.push_back(first(h) + i);
  return ranks;
}

std::vector<int> HostMap::members(int host) const {
  std::vector<int> ranks(static_cast<size_t>(size(host)));
  std::iota(ranks.begin(), ranks.end(), first(host));
  return ranks;
}

HostReduction::HostReduction(const TreePlan& plan, const HostMap& hosts, int host)
    : units_(plan.units()), between_(plan.units(), units_of_hosts(plan, hosts)) {
  COHORT_CHECK_EQ(plan.ranks(), hosts.ranks());
  std::vector<UnitRange> pieces;
  for (int r = 0; r < plan.ranks(); r++) {
    pieces_.push_back(plan.pieces(r));
    if (hosts.host_of(r) == host)
      pieces.insert(pieces.end(), plan.pieces(r).begin(), plan.pieces(r).end());
  }
  for (const UnitRange& whole : between_.pieces(host)) {
    std::vector<UnitRange> parts;
    for (const UnitRange& piece : pieces)
      if (piece.begin >= whole.begin && piece.end <= whole.end)
        parts.push_back({piece.begin - whole.begin, piece.end - whole.begin});
    subtrees_.emplace_back(whole.size(), parts);
    COHORT_CHECK_EQ(subtrees_.back().total_pieces(), int(parts.size()));
  }
}

bool HostReduction::is_of(const TreePlan& plan) const {
  if (plan.units() != units_ || plan.ranks() != int(pieces_.size())) return false;
  for (int r = 0; r < plan.ranks(); r++)
    if (plan.pieces(r) != pieces_[size_t(r)]) return false;
  return true;
}

void HostReduction::run(std::span<const float* const> pieces, float* out, int64_t count) {
  size_t next = 0;
  for (size_t i = 0; i < subtrees_.size(); i++) {
    const auto parts = size_t(subtrees_[i].total_pieces());
    tree_sum_.run(subtrees_[i], pieces.subspan(next, parts), out + int64_t(i) * count, count);
    next += parts;
  }
  COHORT_CHECK_EQ(next, pieces.size());
}

}  // namespace cohort
