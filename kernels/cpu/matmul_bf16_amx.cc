// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul_bf16_amx.h"

namespace cohort {

void matmul_bf16_amx(const MatmulJob& job, int64_t p0, int64_t p1) {
  multiply_bf16_on_tiles<HardwareTiles>(job, p0, p1);
}

}  // namespace cohort
