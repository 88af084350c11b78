// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/latent_attention.h"

#include <cmath>

namespace cohort {
namespace {

// Heads as parts of rows [tokens, heads * dim].
HeadsView in_rows(Tensor rows, int64_t dim, int64_t first) {
  return {rows.f32(), rows.dim(1), dim, first};
}
// One head's rows after the other: [heads * tokens, dim].
HeadsView in_heads(Tensor heads, int64_t tokens) {
  return {heads.f32(), heads.dim(1), tokens * heads.dim(1), 0};
}

// Attention divides scores by the root of its dimensions; the model wants `scale`.
float query_factor(const ModelConfig& config, int dim) {
  const double scale =
      config.score_scale > 0 ? config.score_scale : 1 / std::sqrt(double(config.head_dim));
  return float(scale * std::sqrt(double(dim)));
}

}  // namespace

LatentAttention::LatentAttention(const LayerWeights& weights, int64_t layer, const KvLayer& kv,
                                 const RopeTable& rope, const ModelConfig& config, Group& tp,
                                 const TreePlan& plan)
    : weights_(*weights.latent),
      config_(config.latent),
      layer_(layer),
      eps_(float(config.norm_eps)),
      factor_(query_factor(config, kv.geometry.dim)),
      o_(weights.o, tp, plan),
      kv_(kv),
      rope_(rope) {}

Task LatentAttention::forward(Step& step, Tensor out, Tensor) {
  const Tensor q = step.work.q.rows(step.rows), mixed = step.work.mixed.rows(step.rows);
  step.where.set(Operation::attention, layer_);
  make_latent(step);
  make_queries(step);
  ops::rope_store(step.stream, q, kv_, step.work.qkv.rows(step.rows), step.batch, rope_);
  ops::attention(step.stream, mixed, q, kv_, step.batch);
  const Tensor values = make_values(step, mixed);
  step.where.set(Operation::attention_output, layer_);
  co_await o_.forward(step.stream, step.work.linear, out, values);
}

// The head's parts of qkv: rope, then nope as its key matrix absorbs it.
void LatentAttention::make_queries(Step& step) const {
  LatentWorkspace& work = *step.work.latent;
  const int64_t rows = step.rows, heads = kv_.geometry.heads, dim = kv_.geometry.dim;
  const int64_t head_dim = config_.nope_dim + config_.rope_dim;
  Activations& prepared = step.work.linear.activations;
  if (config_.q_rank > 0) {
    const Tensor low = work.q_low.rows(rows);
    ColumnParallel(weights_.q_down).multiply(step.stream, prepared, low);
    ops::norm_heads(step.stream, low, 0, 1, weights_.q_norm.tensor(), eps_);
    ops::prepare(step.stream, prepared, low);
  }
  const Tensor q = work.q.rows(rows), qkv = step.work.qkv.rows(rows);
  ColumnParallel(weights_.q_up).multiply(step.stream, prepared, q);
  const Tensor nope = work.narrow.view(heads * rows, config_.nope_dim);
  const Tensor absorbed = work.wide.rows(heads * rows);
  ops::copy_heads(step.stream, in_heads(nope, rows), in_rows(q, head_dim, 0), rows, heads,
                  config_.nope_dim, 1);
  each_head(step, absorbed, nope, weights_.key_up);
  ops::copy_heads(step.stream, in_rows(qkv, dim, 0), in_rows(q, head_dim, config_.nope_dim), rows,
                  heads, config_.rope_dim, factor_);
  ops::copy_heads(step.stream, in_rows(qkv, dim, config_.rope_dim), in_heads(absorbed, rows), rows,
                  heads, config_.kv_rank, factor_);
}

// The one key and value of each token. The part of the value beside the key's rotated part is
// whatever is finite: nobody reads what attention makes of it.
void LatentAttention::make_latent(Step& step) const {
  const int64_t rows = step.rows, dim = kv_.geometry.dim, first = kv_.geometry.heads * dim;
  const Tensor kv = step.work.latent->kv.rows(rows), qkv = step.work.qkv.rows(rows);
  ColumnParallel(weights_.kv_down).multiply(step.stream, step.work.linear.activations, kv);
  ops::norm_heads(step.stream, kv, 0, 1, weights_.kv_norm.tensor(), eps_);
  for (const int64_t at : {first, first + dim}) {
    ops::copy_heads(step.stream, in_rows(qkv, 0, at), in_rows(kv, 0, config_.kv_rank), rows, 1,
                    config_.rope_dim, 1);
    ops::copy_heads(step.stream, in_rows(qkv, 0, at + config_.rope_dim), in_rows(kv, 0, 0), rows, 1,
                    config_.kv_rank, 1);
  }
}

void LatentAttention::each_head(Step& step, Tensor y, Tensor x, const MatrixGroup& w) const {
  LatentWorkspace& work = *step.work.latent;
  for (size_t head = 0; head < work.offsets.size(); head++)
    work.offsets[head] = int32_t(int64_t(head) * step.rows);
  const Tensor offsets(work.offsets.data(), DType::i32, {int64_t(work.offsets.size())});
  ops::grouped_matmul(step.stream, y, x, w, offsets, work.activations);
}

Tensor LatentAttention::make_values(Step& step, Tensor mixed) const {
  LatentWorkspace& work = *step.work.latent;
  const int64_t rows = step.rows, heads = kv_.geometry.heads;
  const Tensor latent = work.wide.rows(heads * rows), values = work.mixed.rows(rows);
  const Tensor narrow = work.narrow.view(heads * rows, config_.value_dim);
  ops::copy_heads(step.stream, in_heads(latent, rows),
                  in_rows(mixed, kv_.geometry.dim, config_.rope_dim), rows, heads, config_.kv_rank,
                  1);
  each_head(step, narrow, latent, weights_.value_up);
  ops::copy_heads(step.stream, in_rows(values, config_.value_dim, 0), in_heads(narrow, rows), rows,
                  heads, config_.value_dim, 1);
  return values;
}

}  // namespace cohort
