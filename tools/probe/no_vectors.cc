// SPDX-License-Identifier: Apache-2.0
// In place of the units of x86's instruction sets on other processors. None of them is supported()
// there, so nothing calls these.
#include "tools/probe/loops.h"

namespace cohort {

double fma_avx2(int64_t rounds) { return fma_portable(rounds); }
double fma_avx512(int64_t rounds) { return fma_portable(rounds); }
double int8_avx2(int64_t rounds) { return int8_portable(rounds); }
double int8_avx512(int64_t rounds) { return int8_portable(rounds); }
double tiles_amx(int64_t rounds) { return fma_portable(rounds); }
uint64_t read_avx2(const std::byte* data, size_t bytes) { return read_portable(data, bytes); }
uint64_t read_avx512(const std::byte* data, size_t bytes) { return read_portable(data, bytes); }

}  // namespace cohort
