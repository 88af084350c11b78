// SPDX-License-Identifier: Apache-2.0
// Which experts of which layers have copies on which dp ranks: from the load of the last seconds,
// as the ranks report it, to what the next plans say (docs/step.md, "Copies of experts"). Pure: the
// same reports at the same times give the same copies. One thread at a time.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "worker/expert_load.h"
#include "worker/leader/column_balance.h"
#include "worker/step_plan.h"

namespace cohort {

// Where the experts are.
struct ExpertOwners {
  int tp = 1, dp = 1;
  int experts = 0;               // of a layer
  std::vector<int32_t> layers;   // that have experts, ascending
  std::vector<UnitRange> owned;  // of rank tp * dp_size + dp, as Partition::experts
  std::vector<int> shares = {};  // of rank dp * tp_size + tp, as Layout; empty: equal
  int room = kMostExpertCopies;  // copies of a layer that a rank can have
};

struct BalancerOptions {
  Duration window = std::chrono::seconds(10);   // of load that counts
  Duration slice = std::chrono::seconds(1);     // so much of it is forgotten at once
  Duration interval = std::chrono::seconds(2);  // between looks at a layer
  // Rows of a rank in the window, on average, without which its load is left to chance.
  double least_rows = 2048;
  // Over the mean of a column's ranks. Copies are made where the largest load is above `uneven` and
  // they lower it by `gain`; until it is at `enough`, each by `least`. The gaps keep them where
  // they are while the load stays what it is.
  double uneven = 1.15, enough = 1.05, gain = 0.10, least = 0.02;
  // A copy goes that computes less than `cold`, or without which the largest load of the ranks that
  // have the expert would be no larger than it is, or than `spare`; and all that for so many looks,
  // which are more than a window.
  double cold = 0.02, spare = 1.03;
  int patience = 6;
  // Ranks read an expert's weights before the step: more would hold up tokens.
  int adds_per_plan = 2;
};

class ExpertBalancer {
 public:
  ExpertBalancer(ExpertOwners owners, BalancerOptions options);

  // INVALID_ARGUMENT, and nothing is counted: no such layer, dp group or number of experts.
  Status add(const ExpertLoad& load, TimePoint now);
  // What the next plan says, each change told once: drops, then a few copies.
  std::vector<ExpertCopy> next(TimePoint now);

  // The largest load of a rank over the mean, layer by layer and added up, in the window. 0: none.
  double imbalance(TimePoint now);
  int copies() const;  // that there are, of all layers

 private:
  struct Slice {
    TimePoint begin{};
    std::vector<std::vector<int64_t>> chosen;  // by layer, [dp][experts]
  };
  struct Layer {
    std::vector<Holders> columns;
    std::vector<std::map<std::pair<int, int>, int>> unneeded;  // looks, by expert and dp
    TimePoint look{};                                          // the next
  };

  int64_t& chosen(Slice& slice, size_t layer, int dp, int expert) const;
  void forget(TimePoint now);
  void load_columns(size_t layer);
  void look(size_t layer);
  void look(size_t layer, size_t column);
  void drop_unneeded(size_t layer, size_t column);
  bool needed(size_t layer, size_t column, int e, int d) const;
  void change(size_t layer, size_t column, Holders target);

  const ExpertOwners owners_;
  const BalancerOptions options_;
  std::vector<ColumnBalance> columns_;
  std::vector<Layer> layers_;
  std::deque<Slice> slices_;
  Slice sum_;        // of the slices
  size_t turn_ = 0;  // the layer that is looked at next
  std::deque<ExpertCopy> pending_;
};

}  // namespace cohort
