// SPDX-License-Identifier: Apache-2.0
// What the layers need to know of the step that runs. Lives on the step thread for one step.
#pragma once
#include <cstdint>

#include "base/stream.h"
#include "kernels/attention_batch.h"
#include "kernels/ops.h"
#include "worker/where.h"
#include "worker/workspace.h"

namespace cohort {

struct Step {
  Stream& stream;
  Workspace& work;
  Where& where;
  const AttentionBatch& batch;
  int64_t rows;       // tokens of the step, in plan order; on a GPU some padding may follow them
  Tensor row_errors;  // i32 [rows], row_error codes
};

}  // namespace cohort
