// SPDX-License-Identifier: Apache-2.0
// AVX-512 has products of bf16 pairs, but they add in another order: these are FMA of f32.
#include "kernels/cpu/matmul_bf16_vector.h"

namespace cohort {
namespace {

struct Avx512 {
  using Vector = __m512;
  static constexpr int kLanes = 16, kPerPanel = 1, kMostRows = 8;
  // Of weights, beside M rows: 16 chains, which take 16 of 32 registers and hide the latency of
  // FMA.
  template <int M>
  static constexpr int kVectors = M >= 8   ? 1
                                  : M >= 4 ? 2
                                           : 4;

  static COHORT_INLINE Vector zero() { return _mm512_setzero_ps(); }
  static COHORT_INLINE Vector load(const std::byte* p) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  static COHORT_INLINE Vector broadcast(const float* p) { return _mm512_set1_ps(*p); }
  static COHORT_INLINE Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  static COHORT_INLINE Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
  // n: lanes wanted, or more; none if negative.
  static COHORT_INLINE void store(float* p, Vector x, int64_t n) {
    if (n >= kLanes) return _mm512_storeu_ps(p, x);
    if (n > 0) _mm512_mask_storeu_ps(p, __mmask16((1u << n) - 1), x);
  }
};

}  // namespace

void round_bf16_avx512(const float* x, int64_t n, float* wide, uint16_t* narrow) {
  round_to_bf16(x, n, wide, narrow);
}

void matmul_bf16_avx512(const MatmulJob& job, int64_t p0, int64_t p1) {
  multiply_bf16<Avx512>(job, p0, p1);
}

}  // namespace cohort
