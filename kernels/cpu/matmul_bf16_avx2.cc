// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul_bf16_vector.h"

namespace cohort {
namespace {

struct Avx2 {
  using Vector = __m256;
  static constexpr int kLanes = 8, kPerPanel = 2, kMostRows = 6;
  // Of weights, beside M rows: 8 or, with six rows, 12 chains in 16 registers.
  template <int M>
  static constexpr int kVectors = M >= 4   ? 1
                                  : M >= 2 ? 2
                                           : 4;

  static COHORT_INLINE Vector zero() { return _mm256_setzero_ps(); }
  static COHORT_INLINE Vector load(const std::byte* p) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  static COHORT_INLINE Vector broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  static COHORT_INLINE Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  static COHORT_INLINE Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  // n: lanes wanted, or more; none if negative.
  static COHORT_INLINE void store(float* p, Vector x, int64_t n) {
    if (n >= kLanes) return _mm256_storeu_ps(p, x);
    float all[kLanes];
    _mm256_storeu_ps(all, x);
    for (int i = 0; i < n; i++) p[i] = all[i];
  }
};

}  // namespace

void round_bf16_avx2(const float* x, int64_t n, float* wide, uint16_t* narrow) {
  round_to_bf16(x, n, wide, narrow);
}

void matmul_bf16_avx2(const MatmulJob& job, int64_t p0, int64_t p1) {
  multiply_bf16<Avx2>(job, p0, p1);
}

}  // namespace cohort
