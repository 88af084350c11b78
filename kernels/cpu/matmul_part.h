// SPDX-License-Identifier: Apache-2.0
// How a part of a Matrix becomes a job of the kernels. Only for units of the baseline.
#pragma once
#include "kernels/cpu/isa_table.h"
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

// That a kernel of the set needs, of each thread.
inline size_t scratch_bytes(const MatmulJob& job, Isa isa) {
  if (!job.int8) return size_t(job.columns) * kPanelRows * sizeof(float);
  return isa == Isa::amx ? size_t(kTileScratchBytes) : 0;
}

// Of a job whose part is set.
inline MatmulPanels* kernel_of(const CpuKernels& kernels, const MatmulJob& job) {
  return job.bf16.wide && job.type == DType::bf16 ? kernels.matmul_bf16 : kernels.matmul;
}

}  // namespace cohort::cpu
