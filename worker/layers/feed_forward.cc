// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/feed_forward.h"

namespace cohort {

FeedForward::FeedForward(const FeedForwardWeights& weights, int64_t layer, Group& tp,
                         const TreePlan& plan)
    : layer_(layer), gate_up_(weights.gate_up), down_(weights.down, tp, plan) {}

Task FeedForward::forward(Step& step, Tensor out, Tensor h) {
  const Tensor gate_up = step.work.gate_up.view(step.rows, gate_up_.output());
  const Tensor ffn = step.work.ffn.view(step.rows, gate_up_.output() / 2);
  step.where.set(Operation::feed_forward, layer_);
  gate_up_.forward(step.stream, step.work.linear, gate_up, h);
  ops::silu_mul(step.stream, ffn, gate_up);
  step.where.set(Operation::feed_forward_output, layer_);
  co_await down_.forward(step.stream, step.work.linear, out, ffn);
}

}  // namespace cohort
