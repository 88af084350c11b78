// SPDX-License-Identifier: Apache-2.0
// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1.2), in its absorbed form:
// the matrix that makes a head's keys from the latent row is applied to the query instead, and the
// one that makes its values to what attention gives. All heads then share one key per token, the
// latent row behind its rotated part, and the cache holds that alone (as key and as value):
//
//   head of q = [ rope | key_up^T nope ]      key = [ rope | latent ]      value = [ any | latent ]
//
// Tensor-parallel by heads; what makes the latent row is computed by every rank. On the CPU.
#pragma once
#include "kernels/kv_layout.h"
#include "kernels/rope_table.h"
#include "model/config.h"
#include "parallel/linear.h"
#include "worker/layers/block.h"
#include "worker/weights.h"

namespace cohort {

class LatentAttention : public Block {
 public:
  // Borrows everything. kv: one KV head of rope_dim + kv_rank dimensions. plan: who owns which
  // heads.
  LatentAttention(const LayerWeights& weights, int64_t layer, const KvLayer& kv,
                  const RopeTable& rope, const ModelConfig& config, Group& tp,
                  const TreePlan& plan);

  Task forward(Step& step, Tensor out, Tensor h) override;

 private:
  // Both take what step.work.linear.activations hold; the second may leave something else there.
  void make_latent(Step& step) const;
  void make_queries(Step& step) const;
  // Tensors of the step's rows, one head's after the other, through the head's matrix.
  void each_head(Step& step, Tensor y, Tensor x, const MatrixGroup& w) const;
  Tensor make_values(Step& step, Tensor mixed) const;

  const LatentWeights& weights_;
  const LatentConfig config_;
  const int64_t layer_;
  const float eps_;
  const float factor_;  // of queries: what attention's own scale lacks
  const RowParallel o_;
  const KvLayer kv_;
  const RopeTable& rope_;
};

}  // namespace cohort
