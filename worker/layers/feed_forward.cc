// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/feed_forward.h"

namespace cohort {

FeedForward::FeedForward(const FeedForwardWeights& weights, int64_t layer, Group& tp,
                         const TreePlan& plan)
    : layer_(layer), gate_up_(weights.gate_up), down_(weights.down, tp, plan) {}

Task FeedForward::forward(Step& step, Tensor out, Tensor) {
  step.where.set(Operation::feed_forward, layer_);
  widen(step);
  step.where.set(Operation::feed_forward_output, layer_);
  co_await narrow(step, out);
}

void FeedForward::widen(Step& step) const {
  Activations& prepared = step.work.linear.activations;
  const Tensor gate_up = step.work.gate_up.view(step.rows, gate_up_.output());
  gate_up_.multiply(step.stream, prepared, gate_up);
  ops::silu_mul_prepare(step.stream, prepared, step.work.ffn.view(step.rows, gate_up_.output() / 2),
                        gate_up);
}

Started FeedForward::narrow(Step& step, Tensor out) const {
  return down_.multiply(step.stream, step.work.linear, out);
}

}  // namespace cohort
