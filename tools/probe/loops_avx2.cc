// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "tools/probe/loops.h"

namespace cohort {
namespace {

// As many as fill the pipelines (a latency of 4 or 5 cycles, two a cycle) and leave registers over.
constexpr int kChains = 12;

}  // namespace

double fma_avx2(int64_t rounds) {
  __m256 sums[kChains] = {}, x = _mm256_set1_ps(0.5f);
  for (__m256& sum : sums) asm volatile("" : "+x"(sum));
  asm volatile("" : "+x"(x));
  for (int64_t i = 0; i < rounds; i++)
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(sum, x, x);
  for (__m256& sum : sums) asm volatile("" ::"x"(sum));
  return double(rounds) * kChains * 8 * 2;
}

// Each chain multiplies itself, so that no product is the same in every round.
double int8_avx2(int64_t rounds) {
  __m256i sums[kChains] = {}, x = _mm256_set1_epi8(3);
  for (__m256i& sum : sums) asm volatile("" : "+x"(sum));
  asm volatile("" : "+x"(x));
  for (int64_t i = 0; i < rounds; i++)
    for (__m256i& sum : sums) sum = _mm256_add_epi16(_mm256_maddubs_epi16(sum, x), x);
  for (__m256i& sum : sums) asm volatile("" ::"x"(sum));
  return double(rounds) * kChains * 32 * 2;
}

uint64_t read_avx2(const std::byte* data, size_t bytes) {
  constexpr size_t kAtOnce = 8;
  __m256i sums[kAtOnce] = {};
  for (size_t at = 0; at < bytes; at += kAtOnce * sizeof(__m256i)) {
    const __m256i* words = reinterpret_cast<const __m256i*>(data + at);
    for (size_t i = 0; i < kAtOnce; i++)
      sums[i] = _mm256_xor_si256(sums[i], _mm256_load_si256(words + i));
  }
  for (size_t i = 1; i < kAtOnce; i++) sums[0] = _mm256_xor_si256(sums[0], sums[i]);
  return uint64_t(_mm256_extract_epi64(sums[0], 0) ^ _mm256_extract_epi64(sums[0], 1) ^
                  _mm256_extract_epi64(sums[0], 2) ^ _mm256_extract_epi64(sums[0], 3));
}

}  // namespace cohort
