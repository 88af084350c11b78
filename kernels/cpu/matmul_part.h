// SPDX-License-Identifier: Apache-2.0
// How a part of a Matrix becomes a job of the kernels. Only for units of the baseline.
#pragma once
#include "kernels/cpu/matmul_job.h"
#include "kernels/matrix.h"
#include "kernels/packed.h"

namespace cohort::cpu {

inline int64_t panels(const MatrixPart& part) { return (part.rows + kPanelRows - 1) / kPanelRows; }

// Fills in what depends on the part alone. columns: of the whole matrix.
inline void set_part(MatmulJob& job, const MatrixPart& part, int64_t columns) {
  job.type = part.dtype;
  job.quantized = is_quantized(part.dtype);
  job.packed = part.packed.data();
  job.panel_bytes = panel_bytes(part.dtype, columns);
  job.n = part.rows;
}

}  // namespace cohort::cpu
