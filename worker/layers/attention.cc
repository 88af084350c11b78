// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/attention.h"

namespace cohort {

Attention::Attention(const LayerWeights& weights, int64_t layer, const KvLayer& kv,
                     const RopeTable& rope, float norm_eps, Group& tp, const TreePlan& plan)
    : layer_(layer),
      qkv_(weights.qkv),
      o_(weights.o, tp, plan),
      bias_(weights.qkv_bias.tensor()),
      q_norm_(weights.q_norm.tensor()),
      k_norm_(weights.k_norm.tensor()),
      eps_(norm_eps),
      kv_(kv),
      rope_(&rope) {}

// What some families do to queries and keys before they are rotated.
void Attention::adjust(Step& step, Tensor qkv) const {
  const KvGeometry& g = kv_.geometry;
  if (bias_.rank() > 0) ops::add_bias(step.stream, qkv, bias_);
  if (q_norm_.rank() == 0) return;
  ops::norm_heads(step.stream, qkv, 0, g.heads, q_norm_, eps_);
  ops::norm_heads(step.stream, qkv, int64_t(g.heads) * g.dim, g.kv_heads, k_norm_, eps_);
}

Task Attention::forward(Step& step, Tensor out, Tensor h) {
  const Tensor qkv = step.work.qkv.rows(step.rows);
  const Tensor q = step.work.q.rows(step.rows), mixed = step.work.mixed.rows(step.rows);
  step.where.set(Operation::attention, layer_);
  qkv_.forward(step.stream, step.work.linear, qkv, h);
  adjust(step, qkv);
  ops::rope_store(step.stream, q, kv_, qkv, step.batch, *rope_);
  ops::attention(step.stream, mixed, q, kv_, step.batch);
  step.where.set(Operation::attention_output, layer_);
  co_await o_.forward(step.stream, step.work.linear, out, mixed);
}

}  // namespace cohort
