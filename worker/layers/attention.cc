// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/attention.h"

namespace cohort {

Attention::Attention(const LayerWeights& weights, int64_t layer, const KvLayer& kv,
                     const RopeTable& rope, const ModelConfig& config, Group& tp,
                     const TreePlan& plan)
    : layer_(layer),
      qkv_(weights.qkv),
      o_(weights.o, tp, plan),
      bias_(weights.qkv_bias.tensor()),
      q_norm_(weights.q_norm.tensor()),
      k_norm_(weights.k_norm.tensor()),
      norms_rows_(config.query_key_norm == QueryKeyNorm::rows),
      tp_(tp),
      plan_(plan),
      q_columns_(config.heads * config.head_dim),
      k_columns_(config.kv_heads * config.head_dim),
      eps_(float(config.norm_eps)),
      kv_(kv),
      rope_(&rope) {}

// What some families do to queries and keys before they are rotated.
Task Attention::adjust(Step& step, Tensor qkv) {
  const KvGeometry& g = kv_.geometry;
  if (bias_.rank() > 0) ops::add_bias(step.stream, qkv, bias_);
  if (q_norm_.rank() == 0) co_return;
  if (norms_rows_) {
    co_await norm_rows(step, qkv);
    co_return;
  }
  ops::norm_heads(step.stream, qkv, 0, g.heads, q_norm_, eps_);
  ops::norm_heads(step.stream, qkv, int64_t(g.heads) * g.dim, g.kv_heads, k_norm_, eps_);
}

// Rows are cut between ranks: their squares are added up in the order of the tree over units, those
// of queries and of keys in one all-reduce.
Task Attention::norm_rows(Step& step, Tensor qkv) {
  const KvGeometry& g = kv_.geometry;
  const int64_t rows = step.rows, first_key = int64_t(g.heads) * g.dim;
  const std::span<const UnitRange> ranges = o_.ranges();
  const int64_t q_width = q_columns_ / plan_.units(), k_width = k_columns_ / plan_.units();
  // Where the first unit is a later part of its KV head.
  const int64_t first_part = int64_t(g.skipped_heads) * g.dim / g.group();
  float* at = step.work.squares.as<float>();
  for (const UnitRange& piece : ranges) {
    const std::span<const UnitRange> one(&piece, 1);
    const Tensor of_q(at, DType::f32, {1, rows}), of_k(at + rows, DType::f32, {1, rows});
    ops::square_sums(step.stream, of_q, qkv, 0, q_width, one);
    ops::square_sums(step.stream, of_k, qkv, first_key + first_part, k_width, one);
    at += 2 * rows;
  }
  const Tensor pieces(step.work.squares.data(), DType::f32, {int64_t(ranges.size()), 2 * rows});
  const Tensor sums(at, DType::f32, {2 * rows});
  co_await tp_.all_reduce(plan_, pieces, sums);
  const Tensor of_q(at, DType::f32, {rows}), of_k(at + rows, DType::f32, {rows});
  ops::norm_part(step.stream, qkv, 0, of_q, q_columns_, q_norm_, eps_);
  ops::norm_part(step.stream, qkv, first_key, of_k, k_columns_, k_norm_, eps_);
}

Task Attention::forward(Step& step, Tensor out, Tensor) {
  const Tensor qkv = step.work.qkv.rows(step.rows);
  const Tensor q = step.work.q.rows(step.rows), mixed = step.work.mixed.rows(step.rows);
  step.where.set(Operation::attention, layer_);
  qkv_.multiply(step.stream, step.work.linear.activations, qkv);
  if (bias_.rank() > 0 || q_norm_.rank() > 0) co_await adjust(step, qkv);
  ops::rope_store(step.stream, q, kv_, qkv, step.batch, *rope_);
  ops::attention(step.stream, mixed, q, kv_, step.batch);
  step.where.set(Operation::attention_output, layer_);
  co_await o_.forward(step.stream, step.work.linear, out, mixed);
}

}  // namespace cohort
