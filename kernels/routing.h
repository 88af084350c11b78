// SPDX-License-Identifier: Apache-2.0
// How router logits become a choice of experts (docs/arithmetic.md section 8). A plain value, from
// the model's config.
#pragma once
#include <cstdint>

namespace cohort {

struct Routing {
  int32_t experts = 0, per_token = 0;
  bool sigmoid = false;  // scores: sigmoid of each logit; else softmax over all experts
  // Experts are cut into `groups` equal runs; only those of the `groups_per_token` best can be
  // chosen. A group is as good as its best expert, or as its two best together.
  int32_t groups = 1, groups_per_token = 1;
  bool two_best = false;
  bool normalise = false;  // weights are divided by their sum
  float scale = 1;         // and multiplied by this
};

}  // namespace cohort
