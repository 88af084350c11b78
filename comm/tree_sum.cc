// SPDX-License-Identifier: Apache-2.0
#include "comm/tree_sum.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace cohort {
namespace {

// Elements added up at a time, so that partial sums stay in the first-level cache.
constexpr int64_t kBlock = 1024;

// sum = a + b; sum may be a. Sixteen at a time through a local array, which lets the compiler use
// vectors without having to prove anything about aliasing.
void add(const float* a, const float* b, float* sum, int64_t count) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    float t[16];
    for (int j = 0; j < 16; j++) t[j] = a[i + j] + b[i + j];
    std::memcpy(sum + i, t, sizeof t);
  }
  for (; i < count; i++) sum[i] = a[i] + b[i];
}

}  // namespace

void TreeSum::run(const TreePlan& plan, std::span<const float* const> pieces, float* out,
                  int64_t count) {
  COHORT_CHECK_EQ(int(pieces.size()), plan.total_pieces());
  if (pieces.empty()) {
    std::fill_n(out, count, 0.0f);
    return;
  }
  if (pieces.size() == 1) {
    if (count > 0) std::memcpy(out, pieces[0], size_t(count) * sizeof(float));
    return;
  }
  // Sums into piece 0 go straight to `out` (the last addition is always one of them), others to
  // their piece's row of the scratch memory.
  if (pieces.size() > 2) scratch_.resize(pieces.size() * size_t(kBlock));
  current_.resize(pieces.size());
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    for (size_t p = 0; p < pieces.size(); p++) current_[p] = pieces[p] + begin;
    for (const TreeAdd& step : plan.adds()) {
      float* sum = step.into == 0 ? out + begin : scratch_.data() + step.into * kBlock;
      add(current_[size_t(step.into)], current_[size_t(step.from)], sum,
          std::min(kBlock, count - begin));
      current_[size_t(step.into)] = sum;
    }
  }
}

}  // namespace cohort
