// SPDX-License-Identifier: Apache-2.0
#include "worker/leader/column_balance.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace cohort {
namespace {

bool has(const std::vector<int>& holders, int d) { return std::ranges::binary_search(holders, d); }

std::vector<int> with(std::vector<int> holders, int d) {
  holders.insert(std::ranges::lower_bound(holders, d), d);
  return holders;
}

}  // namespace

ColumnBalance::ColumnBalance(std::vector<UnitRange> owned, std::vector<double> weights, int room)
    : owned_(std::move(owned)), weights_(std::move(weights)), room_(room) {
  COHORT_CHECK(!owned_.empty());
  COHORT_CHECK_EQ(owned_.size(), weights_.size());
}

int ColumnBalance::owner(int expert) const {
  int d = 0;
  while (expert >= owned_[size_t(d)].end) d++;
  return d;
}

Holders ColumnBalance::owners() const {
  Holders holders;
  for (int expert = experts().begin; expert < experts().end; expert++)
    holders.push_back({owner(expert)});
  return holders;
}

double ColumnBalance::load(const std::vector<double>& rows, int d) const {
  const double weight = weights_[size_t(d)];
  return weight > 0 ? rows[size_t(d)] / weight : rows[size_t(d)];
}

// Adds sign times the rows of the e-th expert to those of its holders.
void ColumnBalance::add_rows(const std::vector<int>& holders, int e, double sign,
                             std::vector<double>& rows) const {
  for (int g = 0; g < ranks(); g++) {
    const double n = sign * rows_[size_t(g)][size_t(e)];
    if (has(holders, g)) {
      rows[size_t(g)] += n;
      continue;
    }
    for (const int d : holders) rows[size_t(d)] += n / double(holders.size());
  }
}

std::vector<double> ColumnBalance::loads(const Holders& holders) const {
  std::vector<double> rows(owned_.size(), 0), loads;
  for (size_t e = 0; e < holders.size(); e++) add_rows(holders[e], int(e), 1, rows);
  for (int d = 0; d < ranks(); d++) loads.push_back(load(rows, d));
  return loads;
}

double ColumnBalance::mean() const {
  double rows = 0;
  for (const auto& group : rows_) rows = std::accumulate(group.begin(), group.end(), rows);
  const double weights = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  return weights > 0 ? rows / weights : rows / double(ranks());
}

double ColumnBalance::served(const Holders& holders, int e, int d) const {
  std::vector<double> rows(owned_.size(), 0);
  add_rows(holders[size_t(e)], e, 1, rows);
  return load(rows, d);
}

int ColumnBalance::busiest(const std::vector<double>& rows) const {
  int most = 0;
  for (int d = 1; d < ranks(); d++)
    if (load(rows, d) > load(rows, most)) most = d;
  return most;
}

// The copy that relieves rank `from` most, counting what its new rank gets; the first of equals.
ColumnBalance::Candidate ColumnBalance::best_copy(const Holders& holders,
                                                  const std::vector<int>& room,
                                                  const std::vector<double>& rows, int from) const {
  Candidate best;
  for (size_t e = 0; e < holders.size(); e++) {
    if (!has(holders[e], from)) continue;
    for (int d = 0; d < ranks(); d++) {
      if (room[size_t(d)] == 0 || weights_[size_t(d)] <= 0 || has(holders[e], d)) continue;
      std::vector<double> after = rows;
      add_rows(holders[e], int(e), -1, after);
      add_rows(with(holders[e], d), int(e), 1, after);
      const double most = std::max(load(after, from), load(after, d));
      if (best.e < 0 || most < best.most) best = {int(e), d, most};
    }
  }
  return best;
}

Holders ColumnBalance::spread(double enough, double least) const {
  Holders holders = owners();
  std::vector<int> room(owned_.size(), room_);
  std::vector<double> rows(owned_.size(), 0);
  for (size_t e = 0; e < holders.size(); e++) add_rows(holders[e], int(e), 1, rows);
  while (true) {
    const int from = busiest(rows);
    if (load(rows, from) <= enough * mean()) return holders;
    const Candidate best = best_copy(holders, room, rows, from);
    if (best.e < 0 || best.most > load(rows, from) - least * mean()) return holders;
    std::vector<int>& of = holders[size_t(best.e)];
    add_rows(of, best.e, -1, rows);
    of = with(of, best.d);
    add_rows(of, best.e, 1, rows);
    room[size_t(best.d)]--;
  }
}

}  // namespace cohort
