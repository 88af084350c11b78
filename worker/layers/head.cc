// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/head.h"

namespace cohort {

const Activations& Head::norm(Step& step, Tensor x, Tensor rows) const {
  Activations& prepared = step.work.linear.activations;
  const Tensor gathered = gathered_.rows(rows.dim(0)), h = step.work.h.rows(rows.dim(0));
  ops::gather_rows(step.stream, gathered, x, rows);
  ops::rms_norm_prepare(step.stream, prepared, h, gathered, norm_, eps_);
  return prepared;
}

Task Head::forward(Step& step, Tensor logits, Tensor x, Tensor rows) {
  co_await table_.forward(step.stream, norm(step, x, rows), logits);
}

Tensor Head::part(Step& step, Tensor x, Tensor rows) const {
  return table_.part(step.stream, norm(step, x, rows));
}

}  // namespace cohort
