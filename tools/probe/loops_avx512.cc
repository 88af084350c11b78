// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "tools/probe/loops.h"

namespace cohort {
namespace {

constexpr int kChains = 12;

}  // namespace

double fma_avx512(int64_t rounds) {
  __m512 sums[kChains] = {}, x = _mm512_set1_ps(0.5f);
  for (__m512& sum : sums) asm volatile("" : "+v"(sum));
  asm volatile("" : "+v"(x));
  for (int64_t i = 0; i < rounds; i++)
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(sum, x, x);
  for (__m512& sum : sums) asm volatile("" ::"v"(sum));
  return double(rounds) * kChains * 16 * 2;
}

double int8_avx512(int64_t rounds) {
  __m512i sums[kChains] = {}, x = _mm512_set1_epi8(1);
  for (__m512i& sum : sums) asm volatile("" : "+v"(sum));
  asm volatile("" : "+v"(x));
  for (int64_t i = 0; i < rounds; i++)
    for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, x, x);
  for (__m512i& sum : sums) asm volatile("" ::"v"(sum));
  return double(rounds) * kChains * 64 * 2;
}

uint64_t read_avx512(const std::byte* data, size_t bytes) {
  constexpr size_t kAtOnce = 8;
  __m512i sums[kAtOnce] = {};
  for (size_t at = 0; at < bytes; at += kAtOnce * sizeof(__m512i)) {
    const __m512i* words = reinterpret_cast<const __m512i*>(data + at);
    for (size_t i = 0; i < kAtOnce; i++)
      sums[i] = _mm512_xor_si512(sums[i], _mm512_load_si512(words + i));
  }
  for (size_t i = 1; i < kAtOnce; i++) sums[0] = _mm512_xor_si512(sums[0], sums[i]);
  alignas(64) uint64_t words[8];
  _mm512_store_si512(words, sums[0]);
  return words[0] ^ words[1] ^ words[2] ^ words[3] ^ words[4] ^ words[5] ^ words[6] ^ words[7];
}

}  // namespace cohort
