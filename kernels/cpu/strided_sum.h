// SPDX-License-Identifier: Apache-2.0
// The order in which rows are added up (docs/arithmetic.md sections 4, 6 and 8): element i goes to
// partial sum i % 16, then sums 8, 4, 2 and 1 apart are added. Only for units of the baseline.
#pragma once
#include <cstdint>

namespace cohort::cpu {

// The sum of element(i) for i in [0, n).
template <class Element>
float strided_sum(int64_t n, Element element) {
  constexpr int kSums = 16;
  float sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (int lane = 0; lane < kSums; lane++) sums[lane] += element(i + lane);
  for (int lane = 0; i < n; i++, lane++) sums[lane] += element(i);
  for (int half = kSums / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; lane++) sums[lane] += sums[lane + half];
  return sums[0];
}

}  // namespace cohort::cpu
