// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/decoder_layer.h"

#include <utility>

namespace cohort {

DecoderLayer::DecoderLayer(const LayerWeights& weights, int64_t layer, float norm_eps,
                           std::unique_ptr<Block> attention, std::unique_ptr<Block> feed_forward,
                           Tensor next_norm)
    : layer_(layer),
      eps_(norm_eps),
      feed_forward_norm_(weights.feed_forward_norm.tensor()),
      next_norm_(next_norm),
      attention_(std::move(attention)),
      feed_forward_(std::move(feed_forward)) {}

Task DecoderLayer::forward(Step& step, Tensor x) {
  const Tensor h = step.work.h.rows(step.rows);
  const Tensor mixed = attention_->output(step), sum = feed_forward_->output(step);
  co_await attention_->forward(step, mixed, h);
  Activations& prepared = step.work.linear.activations;
  ops::add_rms_norm_prepare(step.stream, prepared, h, x, mixed, feed_forward_norm_, eps_,
                            step.row_errors, row_error::attention(layer_));
  co_await feed_forward_->forward(step, sum, h);
  const int32_t code = row_error::feed_forward(layer_);
  if (next_norm_.rank() > 0)
    ops::add_rms_norm_prepare(step.stream, prepared, h, x, sum, next_norm_, eps_, step.row_errors,
                              code);
  else
    ops::add_residual(step.stream, x, sum, step.row_errors, code);
}

}  // namespace cohort
