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
  // layer: its number in the model.
  DecoderLayer(const LayerWeights& weights, int64_t layer, const KvLayer& kv,
               const LayerParts& parts);

  // x [tokens, hidden]: the residual stream, in and out.
  Task forward(Step& step, Tensor x);

 private:
  const int64_t layer_;
  const float eps_;
  const Tensor attention_norm_, feed_forward_norm_;  // [hidden]
  Attention attention_;
  FeedForward feed_forward_;
};

}  // namespace cohort
