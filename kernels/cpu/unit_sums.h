// SPDX-License-Identifier: Apache-2.0
// Adds unit sums in the order of the fixed tree (base/unit_tree.h) as they arrive: a binary counter
// that holds log2(units) partial sums in place of all. V: float or a vector of lanes. Everything
// has internal linkage, because units of every instruction set include this.
#pragma once
#include "kernels/packed.h"

namespace cohort {
namespace {

template <class V, int M>
class UnitSums {
 public:
  void clear() { units_ = 0; }
  // sum: M values that the caller keeps in registers, which is why every loop over them must be
  // unrolled.
  __attribute__((always_inline)) inline void push(V (&sum)[M]) {
    int level = 0;
#pragma GCC unroll 1  // else these additions, for each level, are most of a kernel's code
    for (unsigned u = units_++; u & 1; u >>= 1) add(level++, sum);
#pragma GCC unroll 32
    for (int m = 0; m < M; m++) level_[level][m] = sum[m];
  }
  // At least one unit was pushed.
  __attribute__((always_inline)) inline void finish(V (&sum)[M]) {
    int level = __builtin_ctz(units_ | 1u << (kLevels - 1));  // the or bounds it for the compiler
#pragma GCC unroll 32
    for (int m = 0; m < M; m++) sum[m] = level_[level][m];
    // Without a bound, so that it stays a loop.
    for (unsigned u = units_ >> ++level; u; u >>= 1, level++)
      if (u & 1) add(level, sum);
  }

 private:
  __attribute__((always_inline)) inline void add(int level, V (&sum)[M]) {
#pragma GCC unroll 32
    for (int m = 0; m < M; m++) sum[m] = level_[level][m] + sum[m];
  }

  static constexpr int kLevels = 12;
  static_assert(kMaxUnits < 1 << kLevels);
  V level_[kLevels][M];
  unsigned units_ = 0;
};

}  // namespace

}  // namespace cohort
