// SPDX-License-Identifier: Apache-2.0
#include "base/cpu.h"

#include <algorithm>
#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace cohort {
namespace {

#if defined(__x86_64__)
// __builtin_cpu_supports does not know "f16c" in clang 14.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}

// Intel SDM volume 2, CPUID leaf 7: EDX bit 22 AMX-BF16, bit 24 AMX-TILE. The permission: Linux,
// Documentation/arch/x86/xstate.rst.
bool has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kTiles = 1u << 24 | 1u << 22;
  if (!has_avx512() || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kTiles) != kTiles)
    return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#else
bool has_avx2() { return false; }
bool has_avx512() { return false; }
bool has_amx() { return false; }
#endif

}  // namespace

std::string_view name(Isa isa) {
  constexpr std::string_view kNames[] = {"portable", "avx2", "avx512", "amx"};
  return kNames[size_t(isa)];
}

std::optional<Isa> parse_isa(std::string_view text) {
  for (Isa isa : kIsas)
    if (name(isa) == text) return isa;
  return std::nullopt;
}

bool supported(Isa isa) {
  switch (isa) {
    case Isa::portable:
      return true;
    case Isa::avx2:
      return has_avx2();
    case Isa::avx512:
      return has_avx512();
    case Isa::amx:
      return has_amx();
  }
  return false;
}

Isa detect_isa() {
  if (const char* forced = std::getenv("COHORT_ISA"))
    if (auto isa = parse_isa(forced); isa && supported(*isa)) return *isa;
  return *std::find_if(kIsas.rbegin(), kIsas.rend(), supported);
}

}  // namespace cohort
