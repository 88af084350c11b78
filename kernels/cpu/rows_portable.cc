// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/cpu/rows.h"
#include "kernels/cpu/strided_sum.h"

namespace cohort {
namespace {

// Magnitudes as integers order like the numbers; infinity, then NaN on top.
uint32_t magnitude(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffffu; }

}  // namespace

RowSums measure_row_portable(const float* x, int64_t n) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; i++) largest = std::max(largest, magnitude(x[i]));
  return {cpu::strided_sum(n, [x](int64_t i) { return x[i] * x[i]; }), largest};
}

RowSums add_row_portable(float* x, const float* y, int64_t n) {
  for (int64_t i = 0; i < n; i++) x[i] += y[i];
  return measure_row_portable(x, n);
}

void scale_row_portable(float* out, const float* x, float scale, const float* weight, int64_t n) {
  for (int64_t i = 0; i < n; i++) out[i] = x[i] * scale * weight[i];
}

bool lane_maxima_portable(float* maxima, const float* x, int64_t n) {
  bool nan = false;
  for (int64_t begin = 0; begin < n; begin += kVocabBlock, maxima += kVocabLanes) {
    std::fill_n(maxima, kVocabLanes, -std::numeric_limits<float>::infinity());
    const int64_t end = std::min(begin + kVocabBlock, n);
    for (int64_t i = begin; i < end; i++) {
      float& largest = maxima[(i - begin) % kVocabLanes];
      largest = x[i] > largest ? x[i] : largest;
      nan |= x[i] != x[i];
    }
  }
  return nan;
}

void block_sums_portable(double* sums, const float* x, int64_t n) {
  for (int64_t begin = 0; begin < n; begin += kVocabBlock) {
    const float* block = x + begin;
    *sums++ = double(cpu::strided_sum(std::min<int64_t>(kVocabBlock, n - begin),
                                      [block](int64_t i) { return block[i]; }));
  }
}

}  // namespace cohort
