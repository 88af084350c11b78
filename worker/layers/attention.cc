// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/attention.h"

namespace cohort {

Attention::Attention(const LayerWeights& weights, int64_t layer, const KvLayer& kv,
                     const RopeTable& rope, Group& tp, const TreePlan& plan)
    : layer_(layer), qkv_(weights.qkv), o_(weights.o, tp, plan), kv_(kv), rope_(&rope) {}

Task Attention::forward(Step& step, Tensor out, Tensor h) {
  const Tensor qkv = step.work.qkv.rows(step.rows);
  const Tensor q = step.work.q.rows(step.rows), mixed = step.work.mixed.rows(step.rows);
  step.where.set(Operation::attention, layer_);
  qkv_.forward(step.stream, step.work.linear, qkv, h);
  ops::rope_store(step.stream, q, kv_, qkv, step.batch, *rope_);
  ops::attention(step.stream, mixed, q, kv_, step.batch);
  step.where.set(Operation::attention_output, layer_);
  co_await o_.forward(step.stream, step.work.linear, out, mixed);
}

}  // namespace cohort
