// SPDX-License-Identifier: Apache-2.0
// The gated feed-forward: down(silu(gate(h)) * up(h)), tensor-parallel by units of its width; one
// all-reduce.
#pragma once
#include "base/task.h"
#include "base/tensor.h"
#include "parallel/group.h"
#include "parallel/linear.h"
#include "worker/layers/block.h"
#include "worker/step.h"
#include "worker/weights.h"

namespace cohort {

class FeedForward : public Block {
 public:
  // Borrows everything. plan: who owns which feed-forward units.
  FeedForward(const FeedForwardWeights& weights, int64_t layer, Group& tp, const TreePlan& plan);

  Task forward(Step& step, Tensor out, Tensor h) override;
  // Its two halves: what moves nothing, and the rest. The first takes what
  // step.work.linear.activations hold, and leaves there what the second takes.
  void widen(Step& step) const;
  Started narrow(Step& step, Tensor out) const;

 private:
  const int64_t layer_;
  const ColumnParallel gate_up_;
  const RowParallel down_;
};

}  // namespace cohort
