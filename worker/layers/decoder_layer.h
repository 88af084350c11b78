// SPDX-License-Identifier: Apache-2.0
// One layer of a pre-norm decoder: x = x + attention(norm(x)); x = x + feed_forward(norm(x)).
#pragma once
#include <memory>

#include "base/task.h"
#include "base/tensor.h"
#include "worker/layers/block.h"
#include "worker/step.h"
#include "worker/weights.h"

namespace cohort {

class DecoderLayer {
 public:
  // layer: its number in the model. Borrows the weights. next_norm: those of the norm that reads
  // what this layer makes, so that it can be made in the same pass over x; empty where another
  // stage or the head does.
  DecoderLayer(const LayerWeights& weights, int64_t layer, float norm_eps,
               std::unique_ptr<Block> attention, std::unique_ptr<Block> feed_forward,
               Tensor next_norm);

  // x f32 [tokens, hidden]: the residual stream, in and out. step.work.h holds x normed for this
  // layer, and step.work.linear.activations hold h prepared; both are left so for the next one.
  Task forward(Step& step, Tensor x);

 private:
  const int64_t layer_;
  const float eps_;
  const Tensor feed_forward_norm_, next_norm_;  // [hidden]
  const std::unique_ptr<Block> attention_, feed_forward_;
};

}  // namespace cohort
