// SPDX-License-Identifier: Apache-2.0
// What the layers need to know of the step that runs. Lives on the step thread for one step.
#pragma once
#include <cstdint>
#include <span>

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
  // Rows of every dp group, this one's among them: what ranks that exchange rows know beforehand.
  std::span<const int64_t> group_rows = {};
};

}  // namespace cohort
