// SPDX-License-Identifier: Apache-2.0
// What the processor offers. Kernels of every instruction set give the same bits
// (docs/arithmetic.md), so the choice is one of speed alone.
#pragma once
#include <optional>
#include <string_view>

namespace cohort {

enum class Isa { portable, avx2 };

std::string_view name(Isa isa);
std::optional<Isa> parse_isa(std::string_view name);
bool supported(Isa isa);
// The fastest supported one, or what the environment variable COHORT_ISA names if that is
// supported.
Isa detect_isa();

static inline void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace cohort
