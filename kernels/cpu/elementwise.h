// SPDX-License-Identifier: Apache-2.0
// Loops that have a form per instruction set: the others are vectorised well enough by compilers.
#pragma once
#include <cstdint>

namespace cohort {

// out = silu(gate) * up (docs/arithmetic.md section 4).
using SiluMul = void(float* out, const float* gate, const float* up, int64_t n);
SiluMul silu_mul_portable, silu_mul_avx2, silu_mul_avx512;

// out = 2^((x - top) * scale), for x <= top.
using Weigh = void(float* out, const float* x, float top, float scale, int64_t n);
Weigh weigh_portable, weigh_avx2, weigh_avx512;

}  // namespace cohort
