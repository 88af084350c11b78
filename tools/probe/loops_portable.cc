// SPDX-License-Identifier: Apache-2.0
// Vectors of 16 bytes are what every 64-bit target has. Start values are hidden from the compiler:
// chains that it sees to be equal would become one.
#include "tools/probe/loops.h"

namespace cohort {
namespace {

constexpr int kChains = 10;

using Floats = float __attribute__((vector_size(16)));
using Shorts = uint16_t __attribute__((vector_size(16)));  // which may wrap
using Words = uint64_t __attribute__((vector_size(16)));

}  // namespace

double fma_portable(int64_t rounds) {
  Floats sums[kChains] = {}, x = {0.5f, 0.5f, 0.5f, 0.5f};
  asm volatile("" : "+m"(sums), "+m"(x));
  for (int64_t i = 0; i < rounds; i++)
    for (Floats& sum : sums) sum = sum * x + x;
  asm volatile("" ::"m"(sums));
  return double(rounds) * kChains * 4 * 2;
}

double int8_portable(int64_t rounds) {
  Shorts sums[kChains] = {}, x = {3, 3, 3, 3, 3, 3, 3, 3};
  asm volatile("" : "+m"(sums), "+m"(x));
  for (int64_t i = 0; i < rounds; i++)
    for (Shorts& sum : sums) sum = sum * x + x;
  asm volatile("" ::"m"(sums));
  return double(rounds) * kChains * 8 * 2;
}

uint64_t read_portable(const std::byte* data, size_t bytes) {
  constexpr size_t kAtOnce = 8;
  Words sums[kAtOnce] = {};
  for (size_t at = 0; at < bytes; at += kAtOnce * sizeof(Words)) {
    const Words* words = reinterpret_cast<const Words*>(data + at);
    for (size_t i = 0; i < kAtOnce; i++) sums[i] ^= words[i];
  }
  uint64_t all = 0;
  for (const Words& sum : sums) all ^= sum[0] ^ sum[1];
  return all;
}

}  // namespace cohort
