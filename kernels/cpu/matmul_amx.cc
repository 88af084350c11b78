// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul_job.h"

namespace cohort {

void matmul_amx(const MatmulJob& job, int64_t p0, int64_t p1) { matmul_avx512(job, p0, p1); }

}  // namespace cohort
