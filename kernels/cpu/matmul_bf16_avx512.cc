// SPDX-License-Identifier: Apache-2.0
// AVX-512 has products of bf16 pairs, but they add in another order: these are FMA of f32.
#include "kernels/cpu/matmul_bf16_vector.h"

namespace cohort {
namespace {

struct Avx512 {
  using Vector = __m512;
  static constexpr int kLanes = 16, kPerPanel = 1, kMostRows = 12;
  // Up to 24 chains in 32 registers. Few rows need several panels for enough chains; from three on
  // one panel is read better, and memory decides.
  template <int M>
  static constexpr int kVectors = M > 2 ? 1 : 4;

  static COHORT_INLINE Vector zero() { return _mm512_setzero_ps(); }
  // 16 of 32 bf16, from the first or the second column on, become f32: they are the upper halves.
  static COHORT_INLINE Vector widened(__m512i pair, __m512i places) {
    return _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaau, places, pair));
  }
  static COHORT_INLINE __m512i places(int column) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_slli_epi32(_mm512_add_epi32(lanes, _mm512_set1_epi32(16 * column)), 16);
  }
  static COHORT_INLINE Vector load(const char* p, int) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  static COHORT_INLINE void load_pair(const char* p, int, Vector& even, Vector& odd) {
    const __m512i pair = _mm512_loadu_si512(p);
    even = widened(pair, places(0));
    odd = widened(pair, places(1));
  }
  static COHORT_INLINE Vector broadcast(const float* p) { return _mm512_set1_ps(*p); }
  static COHORT_INLINE Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  static COHORT_INLINE Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
  // A panel of outputs: parts x[0], x[apart], ..; n of them are wanted, or more.
  static COHORT_INLINE void store(float* p, const Vector* x, int, int64_t n) {
    _mm512_mask_storeu_ps(p, n < kLanes ? __mmask16((1u << n) - 1) : __mmask16(0xffff), *x);
  }

  static constexpr Bf16TileKernel* kFour[kMostRows] = {
      tile<Avx512, 1, 4>, tile<Avx512, 2, 4>,  tile<Avx512, 3, 4>,  tile<Avx512, 4, 4>,
      tile<Avx512, 5, 4>, tile<Avx512, 6, 4>,  tile<Avx512, 7, 4>,  tile<Avx512, 8, 4>,
      tile<Avx512, 9, 4>, tile<Avx512, 10, 4>, tile<Avx512, 11, 4>, tile<Avx512, 12, 4>};
  static constexpr Bf16TileKernel* kOne[kMostRows] = {
      tile<Avx512, 1, 1>, tile<Avx512, 2, 1>,  tile<Avx512, 3, 1>,  tile<Avx512, 4, 1>,
      tile<Avx512, 5, 1>, tile<Avx512, 6, 1>,  tile<Avx512, 7, 1>,  tile<Avx512, 8, 1>,
      tile<Avx512, 9, 1>, tile<Avx512, 10, 1>, tile<Avx512, 11, 1>, tile<Avx512, 12, 1>};
};

}  // namespace

void round_bf16_avx512(const float* x, int64_t n, float* wide, uint16_t* narrow) {
  round_to_bf16(x, n, wide, narrow);
}

void matmul_bf16_avx512(const MatmulJob& job, int64_t p0, int64_t p1) {
  multiply_bf16<Avx512>(job, p0, p1);
}

}  // namespace cohort
