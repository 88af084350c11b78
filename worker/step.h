// SPDX-License-Identifier: Apache-2.0
// What the layers need to know of the step that runs. Lives on the step thread for one step.
#pragma once
#include <cstdint>
#include <span>

#include "base/stream.h"
#include "kernels/attention_batch.h"
#include "kernels/ops.h"
#include "worker/step_plan.h"
#include "worker/where.h"
#include "worker/workspace.h"

namespace cohort {

struct Step {
  const StepPlan& plan;
  Stream& stream;
  Workspace& work;
  Where& where;
  const AttentionBatch& batch;
  int64_t rows;                   // tokens of the step, in plan order
  std::span<int32_t> row_errors;  // [rows], row_error codes

  // Marks rows of x that are not finite, unless they are marked already.
  void check_finite(Tensor x, int32_t code) { ops::find_not_finite(stream, row_errors, x, code); }
};

}  // namespace cohort
