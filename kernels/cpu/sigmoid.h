// SPDX-License-Identifier: Apache-2.0
// 1 / (1 + e^-x) in one fixed arithmetic (docs/arithmetic.md section 8).
#pragma once
#include "kernels/cpu/exp2.h"

namespace cohort {

// With e = e^-|x| <= 1, which cannot overflow: for negative x, e / (1 + e).
[[maybe_unused]] static float sigmoid(float x) {
  const float e = exp2_not_positive(-std::fabs(x) * kLog2e);
  return (x < 0 ? e : 1) / (1 + e);
}

}  // namespace cohort
