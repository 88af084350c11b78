// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/cpu/state.h"
#include "kernels/ops.h"

namespace cohort::ops::cpu {
namespace {

constexpr int kSums = 16;

// Sum of squares: element i goes to partial sum i % 16, then sums i and i + 8, i + 4, i + 2, i + 1.
float square_sum(const float* x, int64_t n) {
  float sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (int lane = 0; lane < kSums; lane++) sums[lane] += x[i + lane] * x[i + lane];
  for (int lane = 0; i < n; i++, lane++) sums[lane] += x[i] * x[i];
  for (int half = kSums / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; lane++) sums[lane] += sums[lane + half];
  return sums[0];
}

void norm_row(float* out, const float* x, const float* weight, int64_t n, float eps) {
  const float scale = 1 / std::sqrt(square_sum(x, n) / float(n) + eps);
  for (int64_t i = 0; i < n; i++) out[i] = x[i] * scale * weight[i];
}

}  // namespace

void rms_norm(Stream& stream, Tensor out, Tensor x, Tensor weight, float eps) {
  const int64_t rows = x.dim(0), n = x.dim(1);
  cohort::cpu::for_rows(stream, rows, rows * n, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++)
      norm_row(out.f32() + r * n, x.f32() + r * n, weight.f32(), n, eps);
  });
}

}  // namespace cohort::ops::cpu
