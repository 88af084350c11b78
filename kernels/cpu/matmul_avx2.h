// SPDX-License-Identifier: Apache-2.0
// What the two AVX2 units of matmul share.
#pragma once
#include <immintrin.h>

#include "kernels/cpu/matmul_job.h"

namespace cohort {

// Plain weights, and quantised ones in ActivationMode::f32.
MatmulPanels matmul_plain_avx2;

namespace {

// Both halves of a panel's outputs for one row of x.
__attribute__((always_inline)) inline void store_lanes(float* y, __m256 low, __m256 high,
                                                       int lanes) {
  if (lanes == 16) {
    _mm256_storeu_ps(y, low);
    _mm256_storeu_ps(y + 8, high);
    return;
  }
  float all[16];
  _mm256_storeu_ps(all, low);
  _mm256_storeu_ps(all + 8, high);
  for (int i = 0; i < lanes; i++) y[i] = all[i];
}

}  // namespace
}  // namespace cohort
