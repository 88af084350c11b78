// SPDX-License-Identifier: Apache-2.0
// How the load of one layer's experts falls on the ranks of a column (parallel/experts.h), and
// which copies would spread it better. Pure and deterministic.
#pragma once
#include <vector>

#include "base/unit_tree.h"

namespace cohort {

// By expert of the column, in order: the dp ranks that have it, ascending, its owner among them.
using Holders = std::vector<std::vector<int>>;

class ColumnBalance {
 public:
  // owned[d]: experts of dp rank d. weights[d]: how much rank d can do compared with the others; 0:
  // it shall have no copies. room: copies that a rank can have.
  ColumnBalance(std::vector<UnitRange> owned, std::vector<double> weights, int room);

  UnitRange experts() const { return {owned_.front().begin, owned_.back().end}; }
  int ranks() const { return int(owned_.size()); }
  // Without copies.
  Holders owners() const;
  int owner(int expert) const;

  // The rows that the column's experts have to compute: rows[g][e] of dp group g for the column's
  // e-th expert. Valid for the calls below.
  void set_rows(std::vector<std::vector<double>> rows) { rows_ = std::move(rows); }
  // Rows of each rank over its weight, as ExpertPlacement::place deals them out: a group's tokens
  // go to the group itself where it has a copy, else to the holders in turn.
  std::vector<double> loads(const Holders& holders) const;
  // What loads() would be if every rank did as much as it can; its largest is at least that.
  double mean() const;
  // Rows over weight that rank d computes of the column's e-th expert.
  double served(const Holders& holders, int e, int d) const;
  // Copies that bring the largest load to `enough` times the mean, or as near as copies that each
  // gain `least` times the mean can.
  Holders spread(double enough, double least) const;

 private:
  struct Candidate {
    int e = -1, d = -1;
    double most = 0;  // of the two ranks, afterwards
  };
  void add_rows(const std::vector<int>& holders, int e, double sign,
                std::vector<double>& rows) const;
  Candidate best_copy(const Holders& holders, const std::vector<int>& room,
                      const std::vector<double>& rows, int from) const;
  double load(const std::vector<double>& rows, int d) const;
  int busiest(const std::vector<double>& rows) const;

  std::vector<UnitRange> owned_;
  std::vector<double> weights_;
  int room_;
  std::vector<std::vector<double>> rows_;
};

}  // namespace cohort
