// SPDX-License-Identifier: Apache-2.0
// One layer of a pre-norm decoder: x = x + attention(norm(x)); x = x + feed_forward(norm(x)).
#pragma once
#include "base/task.h"
#include "base/tensor.h"
#include "worker/layers/attention.h"
#include "worker/layers/feed_forward.h"
#include "worker/step.h"
#include "worker/weights.h"

namespace cohort {

// What all layers of a rank share; borrowed.
struct LayerParts {
  const RopeTable& rope;
  Group& tp;
  const TreePlan& attention_plan;
  const TreePlan& ffn_plan;
  float norm_eps;
};

class DecoderLayer {
 public:
  // layer: its number in the model. next_norm: the weights of the norm that reads what this layer
  // makes, so that it can be made in the same pass over x; empty where another stage or the head
  // does.
  DecoderLayer(const LayerWeights& weights, int64_t layer, const KvLayer& kv,
               const LayerParts& parts, Tensor next_norm);

  // x f32 [tokens, hidden]: the residual stream, in and out. step.work.h holds x normed for this
  // layer, and is left normed for the next one.
  Task forward(Step& step, Tensor x);

 private:
  const int64_t layer_;
  const float eps_;
  const Tensor feed_forward_norm_, next_norm_;  // [hidden]
  Attention attention_;
  FeedForward feed_forward_;
};

}  // namespace cohort
