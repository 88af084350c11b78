// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/elementwise.h"

#include "kernels/cpu/exp2.h"

namespace cohort {

// silu(x) = x / (1 + e^-x), with e = e^-|x| <= 1: for negative x, x * e / (1 + e).
void silu_mul_portable(float* out, const float* gate, const float* up, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    const float x = gate[i], e = exp2_not_positive(-std::fabs(x) * kLog2e);
    const float top = x < 0 ? x * e : x;
    out[i] = top / (1 + e) * up[i];
  }
}

void weigh_portable(float* out, const float* x, float top, float scale, int64_t n) {
  for (int64_t i = 0; i < n; i++) out[i] = exp2_not_positive((x[i] - top) * scale);
}

}  // namespace cohort
