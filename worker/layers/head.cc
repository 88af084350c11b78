// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/head.h"

namespace cohort {

Tensor Head::normed(Step& step, Tensor x, Tensor rows) const {
  const Tensor gathered = gathered_.rows(rows.dim(0)), h = step.work.h.rows(rows.dim(0));
  ops::gather_rows(step.stream, gathered, x, rows);
  ops::rms_norm(step.stream, h, gathered, norm_, eps_);
  return h;
}

Task Head::forward(Step& step, Tensor logits, Tensor x, Tensor rows) {
  co_await table_.forward(step.stream, step.work.linear, logits, normed(step, x, rows));
}

Tensor Head::part(Step& step, Tensor x, Tensor rows) const {
  return table_.part(step.stream, step.work.linear, normed(step, x, rows));
}

}  // namespace cohort
