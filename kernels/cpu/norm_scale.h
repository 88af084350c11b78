// SPDX-License-Identifier: Apache-2.0
// What rows are multiplied by to be normed (docs/arithmetic.md section 4). Only for units of the
// baseline.
#pragma once
#include <cmath>
#include <cstdint>

namespace cohort::cpu {

// squares: the sum over n elements.
inline float norm_scale(float squares, int64_t n, float eps) {
  return 1 / std::sqrt(squares / float(n) + eps);
}

}  // namespace cohort::cpu
