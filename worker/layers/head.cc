// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/head.h"

namespace cohort {

Task Head::forward(Step& step, Tensor logits, Tensor x, std::span<const int64_t> rows) {
  const Tensor h = step.work.h.rows(int64_t(rows.size()));
  ops::gather_rows(step.stream, h, x, rows);
  ops::rms_norm(step.stream, h, h, norm_, eps_);
  co_await table_.forward(step.stream, step.work.linear, logits, h);
}

}  // namespace cohort
