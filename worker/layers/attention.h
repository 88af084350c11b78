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
#include "worker/step.h"
#include "worker/weights.h"

namespace cohort {

class Attention {
 public:
  // Borrows everything. plan: who owns which attention units.
  Attention(const LayerWeights& weights, int64_t layer, const KvLayer& kv, const RopeTable& rope,
            Group& tp, const TreePlan& plan);

  // out [tokens, hidden] = this block's contribution to the residual stream, of h, which is normed.
  Task forward(Step& step, Tensor out, Tensor h);

 private:
  const int64_t layer_;
  const ColumnParallel qkv_;
  const RowParallel o_;
  const KvLayer kv_;
  const RopeTable* rope_;
};

}  // namespace cohort
