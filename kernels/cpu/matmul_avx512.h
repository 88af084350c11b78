// SPDX-License-Identifier: Apache-2.0
// What the two AVX-512 units of matmul share.
#pragma once
#include <immintrin.h>

#include "kernels/cpu/matmul_job.h"

namespace cohort {

// Plain weights, and quantised ones in ActivationMode::f32.
MatmulPanels matmul_plain_avx512;

namespace {

// Outputs of a panel that exist: the last one may be short.
__attribute__((always_inline)) inline __mmask16 lanes_of(const MatmulJob& job, int64_t panel) {
  const int64_t left = job.n - panel * 16;
  return left < 16 ? __mmask16((1u << left) - 1) : __mmask16(0xffff);
}

}  // namespace
}  // namespace cohort
