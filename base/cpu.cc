// SPDX-License-Identifier: Apache-2.0
#include "base/cpu.h"

#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace cohort {
#if defined(__x86_64__)
namespace {

// __builtin_cpu_supports does not know "f16c" in clang 14.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

}  // namespace
#endif

std::string_view name(Isa isa) { return isa == Isa::avx2 ? "avx2" : "portable"; }

std::optional<Isa> parse_isa(std::string_view text) {
  for (Isa isa : {Isa::portable, Isa::avx2})
    if (name(isa) == text) return isa;
  return std::nullopt;
}

bool supported(Isa isa) {
  if (isa == Isa::portable) return true;
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
#else
  return false;
#endif
}

Isa detect_isa() {
  if (const char* forced = std::getenv("COHORT_ISA"))
    if (auto isa = parse_isa(forced); isa && supported(*isa)) return *isa;
  return supported(Isa::avx2) ? Isa::avx2 : Isa::portable;
}

}  // namespace cohort
