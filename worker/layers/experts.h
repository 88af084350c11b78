// SPDX-License-Identifier: Apache-2.0
// A mixture of experts: each token goes through the few experts that its router chooses, wherever
// they are, and through a shared one where the model has it.
//
//   h ─► router ─► choice ─► dispatch ─► experts of this rank ─► combine ─► sum of this column's
//   │                                                                      experts ─► all-reduce tp
//   └──────────────────────► shared expert (tensor-parallel) ─────────────────────► + ─► out
#pragma once
#include "kernels/routing.h"
#include "model/checkpoint.h"
#include "parallel/experts.h"
#include "worker/layers/block.h"
#include "worker/layers/feed_forward.h"
#include "worker/step_plan.h"
#include "worker/weights.h"

namespace cohort {

Routing routing_of(const ExpertsConfig& config);

// What the expert layers of a stage share; borrowed.
struct ExpertParts {
  const ExpertsConfig& config;
  Group& tp;
  const TreePlan& plan;         // over experts, by column
  const TreePlan& shared_plan;  // over units of the shared expert
  int dp;                       // of this rank
};

class ExpertLayer : public Block {
 public:
  // Borrows weights and parts.
  ExpertLayer(ExpertWeights& weights, int64_t layer, ExpertPlacement placement,
              const ExpertParts& parts);

  Task forward(Step& step, Tensor out, Tensor h) override;
  // f32: what the experts give is added up in f32 even where other sums are not.
  Tensor output(Step& step) override;

  const ExpertPlacement& placement() const { return placement_; }
  // Of this rank's tokens since the last call, by expert: how often each was chosen. Counted on the
  // CPU alone.
  std::vector<int64_t> take_load();
  // Takes up or drops a copy. `matrices`: where it is this rank that gets it.
  void change(const ExpertCopy& copy, ExpertMatrices* matrices);

 private:
  void choose(Step& step);
  void count(const Tensor& chosen);
  Tensor compute(Step& step, const Route& route);
  Task add_shared(Step& step, Tensor out, Tensor h);

  ExpertWeights& weights_;
  const int64_t layer_;
  const Routing routing_;
  const ColumnParallel router_;
  ExpertPlacement placement_;
  Group& tp_;
  const TreePlan& plan_;
  const std::vector<UnitRange> ranges_;  // pieces that this rank makes
  const int dp_;
  const std::unique_ptr<FeedForward> shared_;          // null: none
  const std::unique_ptr<ColumnParallel> shared_gate_;  // null: none
  std::vector<int64_t> load_;
};

}  // namespace cohort
