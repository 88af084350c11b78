// SPDX-License-Identifier: Apache-2.0
// What a decoder layer adds to the residual stream: an attention, a feed-forward, experts.
#pragma once
#include "base/task.h"
#include "base/tensor.h"
#include "worker/step.h"

namespace cohort {

class Block {
 public:
  virtual ~Block() = default;
  // out [tokens, hidden] = this block's contribution of h A [tokens, hidden], which is normed, and
  // which step.work.linear.activations holds until a block makes them hold something else.
  virtual Task forward(Step& step, Tensor out, Tensor h) = 0;
  // Where its output goes: f32 [tokens, hidden], or A where the group's sums are in any order.
  virtual Tensor output(Step& step) { return step.work.sum.rows(step.rows); }
};

}  // namespace cohort
