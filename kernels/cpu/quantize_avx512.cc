// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/quantize.h"

namespace cohort {

void quantize_avx512(const float* x, int8_t* q, float* d, int32_t* sum) {
  quantize_avx2(x, q, d, sum);
}

}  // namespace cohort
