// SPDX-License-Identifier: Apache-2.0
// What kernel tests share: the instruction sets of this machine and comparison of bits.
#pragma once
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/cpu.h"

namespace cohort {

// Those that can run here; what is missing is said aloud.
inline std::vector<Isa> isas() {
  std::vector<Isa> out;
  for (Isa isa : kIsas) {
    if (supported(isa))
      out.push_back(isa);
    else
      std::fprintf(stderr, "NOT TESTED: this processor has no %s\n", name(isa).data());
  }
  return out;
}

// memcmp, except that any NaN equals any other.
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); i++) {
    if (a[i] != a[i] && b[i] != b[i]) continue;
    if (std::memcmp(&a[i], &b[i], 4) != 0) {
      std::fprintf(stderr, "element %zu: %a against %a\n", i, double(a[i]), double(b[i]));
      return false;
    }
  }
  return true;
}

}  // namespace cohort
