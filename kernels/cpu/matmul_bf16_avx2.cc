// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul_bf16_vector.h"

namespace cohort {
namespace {

// The vectors of a panel are its even and its odd rows: pairs of bf16 whose one half is shifted or
// whose other half is masked away.
struct Avx2 {
  using Vector = __m256;
  static constexpr int kPerPanel = 2, kMostRows = 6;
  // Up to 12 chains in 16 registers.
  template <int M>
  static constexpr int kVectors = M > 3   ? 1
                                  : M > 1 ? 2
                                          : 4;

  static COHORT_INLINE Vector zero() { return _mm256_setzero_ps(); }
  static COHORT_INLINE Vector load(const char* p, int part) {
    const __m256i rows = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m256i upper = _mm256_set1_epi32(int(0xffff0000u));
    return _mm256_castsi256_ps(part == 0 ? _mm256_slli_epi32(rows, 16)
                                         : _mm256_and_si256(rows, upper));
  }
  static COHORT_INLINE void load_pair(const char* p, int part, Vector& even, Vector& odd) {
    even = load(p, part);
    odd = load(p + kColumnBytes, part);
  }
  static COHORT_INLINE Vector broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  static COHORT_INLINE Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  static COHORT_INLINE Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  // A panel of outputs: parts x[0], x[apart], ..; n of them are wanted, or more.
  static COHORT_INLINE void store(float* p, const Vector* x, int apart, int64_t n) {
    const Vector low = _mm256_unpacklo_ps(x[0], x[apart]),
                 high = _mm256_unpackhi_ps(x[0], x[apart]);
    float part[kPanelRows];
    float* to = n < kPanelRows ? part : p;
    _mm256_storeu_ps(to, _mm256_permute2f128_ps(low, high, 0x20));
    _mm256_storeu_ps(to + 8, _mm256_permute2f128_ps(low, high, 0x31));
    if (to == part)
      for (int i = 0; i < n; i++) p[i] = part[i];
  }

  static constexpr Bf16TileKernel* kFour[kMostRows] = {tile<Avx2, 1, 4>, tile<Avx2, 2, 4>,
                                                       tile<Avx2, 3, 4>, tile<Avx2, 4, 4>,
                                                       tile<Avx2, 5, 4>, tile<Avx2, 6, 4>};
  static constexpr Bf16TileKernel* kOne[kMostRows] = {tile<Avx2, 1, 1>, tile<Avx2, 2, 1>,
                                                      tile<Avx2, 3, 1>, tile<Avx2, 4, 1>,
                                                      tile<Avx2, 5, 1>, tile<Avx2, 6, 1>};
};

}  // namespace

void round_bf16_avx2(const float* x, int64_t n, float* wide, uint16_t* narrow) {
  round_to_bf16(x, n, wide, narrow);
}

void matmul_bf16_avx2(const MatmulJob& job, int64_t p0, int64_t p1) {
  multiply_bf16<Avx2>(job, p0, p1);
}

}  // namespace cohort
