// SPDX-License-Identifier: Apache-2.0
// Causal grouped-query attention over the paged KV cache, tensor-parallel by units of
// query heads: each rank computes its heads, and the KV heads that they read, from all of h; one
// all-reduce adds the heads' contributions up.
#pragma once
#include "base/task.h"
#include "base/tensor.h"
#include "kernels/kv_layout.h"
#include "kernels/rope_table.h"
#include "model/config.h"
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
            const ModelConfig& config, Group& tp, const TreePlan& plan);

  Task forward(Step& step, Tensor out, Tensor h) override;

 private:
  Task adjust(Step& step, Tensor qkv);
  Task norm_rows(Step& step, Tensor qkv);

  const int64_t layer_;
  const ColumnParallel qkv_;
  const RowParallel o_;
  const Tensor bias_, q_norm_, k_norm_;  // of rank 0: none
  const bool norms_rows_;                // QueryKeyNorm::rows
  Group& tp_;
  const TreePlan& plan_;
  const int64_t q_columns_, k_columns_;  // of all ranks
  const float eps_;
  const KvLayer kv_;
  const RopeTable* rope_;
};

}  // namespace cohort
