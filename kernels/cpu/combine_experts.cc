// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "base/check.h"
#include "kernels/cpu/state.h"
#include "kernels/ops.h"

namespace cohort::ops::cpu {
namespace {

constexpr int64_t kBlock = 128;  // columns at a time: partial sums stay in the first-level cache
constexpr int kLevels = 32;      // of a tree over int32 numbers

// The tree over numbers, of those who are there, in ascending order. Two neighbours meet in the
// node at the level of the highest bit in which they differ. Before one comes in, those partial
// sums are added that meet below its own meeting with the last.
class SparseTree {
 public:
  explicit SparseTree(int64_t columns) : columns_(columns) {}

  void push(int32_t number, const float* x, float weight) {
    const int level = std::bit_width(uint32_t(number ^ last_));
    while (depth_ >= 2 && level_[depth_ - 1] < level) add();
    float* sum = sums_[depth_];
    for (int64_t i = 0; i < columns_; i++) sum[i] = weight * x[i];
    level_[depth_++] = level;
    last_ = number;
  }

  void finish(float* out) {
    while (depth_ >= 2) add();
    if (depth_ == 0)
      std::fill_n(out, columns_, -0.0f);  // adding it changes no bit
    else
      std::copy_n(sums_[0], columns_, out);
  }

 private:
  void add() {
    depth_--;
    for (int64_t i = 0; i < columns_; i++) sums_[depth_ - 1][i] += sums_[depth_][i];
  }

  int64_t columns_;
  int depth_ = 0;
  int32_t last_ = 0;
  int level_[kLevels + 1];  // where each partial sum meets the one before it
  float sums_[kLevels + 1][kBlock];
};

}  // namespace

void combine_experts(Stream& stream, Tensor pieces, Tensor outputs, Tensor places, Tensor experts,
                     Tensor weights, std::span<const UnitRange> ranges) {
  const int64_t tokens = experts.dim(0), k = experts.dim(1), width = outputs.dim(1);
  const int64_t blocks = (width + kBlock - 1) / kBlock;
  const auto combine = [&](size_t range, int64_t t, int64_t column) {
    SparseTree tree(std::min(kBlock, width - column));
    for (int64_t j = t * k; j < (t + 1) * k; j++) {
      const int32_t expert = experts.i32()[j], place = places.i32()[j];
      if (place < 0 || expert < ranges[range].begin || expert >= ranges[range].end) continue;
      COHORT_CHECK_LT(place, outputs.dim(0));
      tree.push(expert, outputs.f32() + place * width + column, weights.f32()[j]);
    }
    tree.finish(pieces.f32() + (int64_t(range) * tokens + t) * width + column);
  };
  const int64_t items = int64_t(ranges.size()) * tokens * blocks;
  cohort::cpu::for_rows(stream, items, tokens * k * width, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++)
      combine(size_t(i / blocks / tokens), i / blocks % tokens, i % blocks * kBlock);
  });
}

}  // namespace cohort::ops::cpu
