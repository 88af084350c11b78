// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "kernels/cpu/state.h"
#include "kernels/ops.h"

namespace cohort::ops::cpu {

// Sorts by counting. offsets[g + 1] counts the pairs of g, then holds the next place of g, which
// ends up where g + 1 begins.
void group_tokens(Stream&, Tensor offsets, Tensor rows, Tensor places, Tensor experts,
                  Tensor local) {
  const int64_t k = experts.dim(1), pairs = experts.elements(), groups = offsets.dim(0) - 1;
  int32_t* next = offsets.i32() + 1;
  std::fill_n(offsets.i32(), groups + 1, 0);
  for (int64_t i = 0; i < pairs; i++) {
    const int64_t expert = experts.i32()[i];
    COHORT_CHECK(expert >= 0 && expert < local.dim(0));
    const int64_t group = local.i32()[expert];
    COHORT_CHECK_LT(group, groups);
    if (group >= 0) next[group]++;
  }
  int32_t at = 0;
  for (int64_t g = 0; g < groups; g++) {
    const int32_t count = next[g];
    next[g] = at;
    at += count;
  }
  std::fill(rows.i32() + at, rows.i32() + pairs, -1);
  for (int64_t i = 0; i < pairs; i++) {
    const int32_t group = local.i32()[experts.i32()[i]];
    const int32_t place = group < 0 ? -1 : next[group]++;
    places.i32()[i] = place;
    if (place >= 0) rows.i32()[place] = int32_t(i / k);
  }
}

void take_rows(Stream& stream, Tensor out, Tensor x, Tensor rows) {
  const int64_t n = rows.dim(0), width = x.dim(1);
  cohort::cpu::for_rows(stream, n, n * width, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const int64_t row = rows.i32()[i];
      COHORT_CHECK(row >= -1 && row < x.dim(0));
      float* to = out.f32() + i * width;
      if (row < 0)
        std::fill_n(to, width, 0.0f);
      else
        std::copy_n(x.f32() + row * width, width, to);
    }
  });
}

}  // namespace cohort::ops::cpu
