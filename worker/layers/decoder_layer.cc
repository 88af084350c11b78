// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/decoder_layer.h"

namespace cohort {

DecoderLayer::DecoderLayer(const LayerWeights& weights, int64_t layer, const KvLayer& kv,
                           const LayerParts& parts, Tensor next_norm)
    : layer_(layer),
      eps_(parts.norm_eps),
      feed_forward_norm_(weights.feed_forward_norm.tensor()),
      next_norm_(next_norm),
      attention_(weights, layer, kv, parts.rope, parts.tp, parts.attention_plan),
      feed_forward_(weights, layer, parts.tp, parts.ffn_plan) {}

Task DecoderLayer::forward(Step& step, Tensor x) {
  const Tensor h = step.work.h.rows(step.rows), sum = step.work.sum.rows(step.rows);
  co_await attention_.forward(step, sum, h);
  ops::add_rms_norm(step.stream, h, x, sum, feed_forward_norm_, eps_, step.row_errors,
                    row_error::attention(layer_));
  co_await feed_forward_.forward(step, sum, h);
  const int32_t code = row_error::feed_forward(layer_);
  if (next_norm_.rank() > 0)
    ops::add_rms_norm(step.stream, h, x, sum, next_norm_, eps_, step.row_errors, code);
  else
    ops::add_residual(step.stream, x, sum, step.row_errors, code);
}

}  // namespace cohort
