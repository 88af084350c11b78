// SPDX-License-Identifier: Apache-2.0
// The kernels that have a form per instruction set. Each unit is compiled with flags of its own and
// gives the bits of the portable one.
#pragma once
#include "base/cpu.h"
#include "kernels/cpu/attention_job.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/matmul_job.h"
#include "kernels/cpu/quantize.h"

namespace cohort {

struct CpuKernels {
  MatmulPanels* matmul;
  QuantizeBlock* quantize;
  SiluMul* silu_mul;
  Weigh* weigh;
  AttendItem* attend;
  MergePieces* merge;
};

// isa: supported by this processor.
const CpuKernels& cpu_kernels(Isa isa);

}  // namespace cohort
