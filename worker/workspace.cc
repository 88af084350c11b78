// SPDX-License-Identifier: Apache-2.0
#include "worker/workspace.h"

#include <algorithm>

namespace cohort {
namespace {

RowBuffer sum_buffer(Stream& stream, Group tp, const WorkspaceShape& s) {
  const DType dtype = tp.ordered() ? DType::f32 : stream.activations();
  const size_t bytes = size_t(bytes_of(dtype, s.rows * s.hidden));
  return RowBuffer(tp.allocate(stream.device(), bytes), dtype, s.rows, s.hidden);
}

}  // namespace

ExpertWorkspace::ExpertWorkspace(Stream& stream, Group tp, Group dp, const ExpertShape& s)
    : exchange(make_expert_exchange(stream, dp,
                                    {.max_rows = s.rows,
                                     .hidden = s.hidden,
                                     .per_token = s.per_token,
                                     .most_held = s.most_held})),
      logits(stream.device(), DType::f32, s.rows, s.experts),
      chosen(stream.device(), DType::i32, s.rows, s.per_token),
      weights(stream.device(), DType::f32, s.rows, s.per_token),
      gate_up(stream.device(), stream.activations(), exchange->max_rows(), 2 * s.ffn),
      ffn(stream.device(), stream.activations(), exchange->max_rows(), s.ffn),
      outputs(stream.device(), stream.activations(), exchange->max_rows(), s.hidden),
      activations(stream, exchange->max_rows(), std::max(s.hidden, s.ffn), s.mode),
      pieces(tp.allocate(stream.device(), size_t(s.pieces * s.rows * s.hidden) * sizeof(float))),
      sum(tp.allocate(stream.device(), size_t(s.rows * s.hidden) * sizeof(float)), DType::f32,
          s.rows, s.hidden),
      shared(tp.allocate(stream.device(), size_t(s.rows * s.hidden) * sizeof(float)), DType::f32,
             s.rows, s.hidden),
      gate(stream.device(), DType::f32, s.rows, 1) {}

LatentWorkspace::LatentWorkspace(Stream& stream, const LatentShape& s)
    : q_low(stream.device(), DType::f32, s.rows, std::max<int64_t>(s.config.q_rank, 1)),
      q(stream.device(), DType::f32, s.rows, s.heads * (s.config.nope_dim + s.config.rope_dim)),
      kv(stream.device(), DType::f32, s.rows, s.config.kv_rank + s.config.rope_dim),
      narrow(stream.device(), DType::f32, s.heads * s.rows,
             std::max(s.config.nope_dim, s.config.value_dim)),
      wide(stream.device(), DType::f32, s.heads * s.rows, s.config.kv_rank),
      mixed(stream.device(), DType::f32, s.rows, s.heads * s.config.value_dim),
      offsets(size_t(s.heads) + 1),
      activations(stream, s.heads * s.rows, std::max(s.config.nope_dim, s.config.kv_rank), s.mode) {
}

Workspace::Workspace(Stream& stream, Group tp, Group dp, const WorkspaceShape& s)
    : h(stream.device(), stream.activations(), s.rows, s.hidden),
      sum(sum_buffer(stream, tp, s)),
      qkv(stream.device(), stream.activations(), s.rows, s.qkv),
      q(stream.device(), stream.activations(), s.rows, s.q),
      mixed(stream.device(), stream.activations(), s.rows, s.q),
      gate_up(stream.device(), stream.activations(), s.rows, 2 * s.ffn),
      ffn(stream.device(), stream.activations(), s.rows, s.ffn),
      linear(stream, tp, s.rows, std::max({s.hidden, s.q, s.ffn, s.latent.config.q_rank}), s.mode,
             tp.ordered() ? s.pieces * s.rows * s.hidden : 0) {
  if (s.experts.experts > 0) experts = std::make_unique<ExpertWorkspace>(stream, tp, dp, s.experts);
  if (s.latent.config.kv_rank > 0) latent = std::make_unique<LatentWorkspace>(stream, s.latent);
  if (s.squares) squares = Buffer(size_t((s.pieces + 1) * 2 * s.rows) * sizeof(float));
}

}  // namespace cohort
