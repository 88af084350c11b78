// SPDX-License-Identifier: Apache-2.0
// Causal grouped-query attention over the paged KV cache, tensor-parallel by units of KV heads:
// each rank computes its heads from all of h; one all-reduce adds the heads' contributions up.
#pragma once
#include "base/task.h"
#include "base/tensor.h"
#include "kernels/kv_layout.h"
#include "kernels/rope_table.h"
#include "parallel/group.h"
#include "parallel/linear.h"
#include "worker/layers/block.h"
#include "worker/step.h"
#include "worker/weights.h"

namespace cohort {

class Attention : public Block {
 public:
  // Borrows everything. plan: who owns which attention units.
  Attention(const LayerWeights& weights, int64_t layer, const KvLayer& kv, const RopeTable& rope,
            float norm_eps, Group& tp, const TreePlan& plan);

  Task forward(Step& step, Tensor out, Tensor h) override;

 private:
  void adjust(Step& step, Tensor qkv) const;

  const int64_t layer_;
  const ColumnParallel qkv_;
  const RowParallel o_;
  const Tensor bias_, q_norm_, k_norm_;  // of rank 0: none
  const float eps_;
  const KvLayer kv_;
  const RopeTable* rope_;
};

}  // namespace cohort
