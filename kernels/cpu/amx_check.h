// SPDX-License-Identifier: Apache-2.0
// Whether tiles add as docs/arithmetic.md section 9 says. Intel's manual does, and processors are
// what they are: bf16 weights, and attention in bf16 arithmetic, use tiles only where a trial
// agrees.
#pragma once
#include "kernels/cpu/matmul_job.h"

namespace cohort {

// Whether a kernel gives the bits of matmul_bf16_portable (any NaN for a NaN): ordinary values,
// wide exponents, denormals, results about to become denormal, overflow, infinity and NaN.
bool sums_as_specified(MatmulPanels* matmul_bf16);

// Of this processor, on which Isa::amx must be supported. Takes some 20 ms.
bool tiles_as_specified();

}  // namespace cohort
