// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/elementwise.h"

namespace cohort {

void silu_mul_avx512(float* out, const float* gate, const float* up, int64_t n) {
  silu_mul_avx2(out, gate, up, n);
}
void weigh_avx512(float* out, const float* x, float top, float scale, int64_t n) {
  weigh_avx2(out, x, top, scale, n);
}

}  // namespace cohort
