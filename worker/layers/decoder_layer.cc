// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/decoder_layer.h"

namespace cohort {

DecoderLayer::DecoderLayer(const LayerWeights& weights, int64_t layer, const KvLayer& kv,
                           const LayerParts& parts)
    : layer_(layer),
      eps_(parts.norm_eps),
      attention_norm_(weights.attention_norm.tensor()),
      feed_forward_norm_(weights.feed_forward_norm.tensor()),
      attention_(weights, layer, kv, parts.rope, parts.tp, parts.attention_plan),
      feed_forward_(weights, layer, parts.tp, parts.ffn_plan) {}

Task DecoderLayer::forward(Step& step, Tensor x) {
  const Tensor h = step.work.h.rows(step.rows);
  ops::rms_norm(step.stream, h, x, attention_norm_, eps_);
  co_await attention_.forward(step, h);
  ops::add(step.stream, x, h);
  step.check_finite(x, row_error::attention(layer_));
  ops::rms_norm(step.stream, h, x, feed_forward_norm_, eps_);
  co_await feed_forward_.forward(step, h);
  ops::add(step.stream, x, h);
  step.check_finite(x, row_error::feed_forward(layer_));
}

}  // namespace cohort
