// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/head.h"

namespace cohort {

Task Head::forward(Step& step, Tensor logits, Tensor x, Tensor rows) {
  const Tensor gathered = gathered_.rows(rows.dim(0)), h = step.work.h.rows(rows.dim(0));
  ops::gather_rows(step.stream, gathered, x, rows);
  ops::rms_norm(step.stream, h, gathered, norm_, eps_);
  co_await table_.forward(step.stream, step.work.linear, logits, h);
}

}  // namespace cohort
