// SPDX-License-Identifier: Apache-2.0
// The kernels that have a form per instruction set. Each unit is compiled with flags of its own and
// gives the bits of the portable one.
#pragma once
#include "base/cpu.h"
#include "kernels/cpu/attention_job.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/matmul_job.h"
#include "kernels/cpu/quantize.h"
#include "kernels/cpu/rows.h"

namespace cohort {

struct CpuKernels {
  MatmulPanels* matmul;
  Quantize* quantize;
  TileRow* tile_row;  // null where there are no tiles
  SiluMul* silu_mul;
  Weigh* weigh;
  AttendItem* attend;
  MergePieces* merge;
  MatmulPanels* matmul_bf16;
  RoundBf16* round_bf16;
  RowKernels rows;
};

// isa: supported by this processor.
const CpuKernels& cpu_kernels(Isa isa);

}  // namespace cohort
