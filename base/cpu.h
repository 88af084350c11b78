// SPDX-License-Identifier: Apache-2.0
// What the processor offers. Kernels of every instruction set give the same bits
// (docs/arithmetic.md), so the choice is one of speed alone.
#pragma once
#include <array>
#include <optional>
#include <string_view>

namespace cohort {

// Each includes the ones before it.
enum class Isa {
  portable,  // C++ alone
  avx2,      // AVX2, FMA, F16C
  avx512,    // AVX-512 F, BW, DQ, VL and VNNI
  amx,       // tiles of bf16
};
inline constexpr std::array kIsas = {Isa::portable, Isa::avx2, Isa::avx512, Isa::amx};

std::string_view name(Isa isa);
std::optional<Isa> parse_isa(std::string_view name);
// Whether this processor and system have it. Tiles need the system's permission, which this asks
// for, for the whole process.
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
