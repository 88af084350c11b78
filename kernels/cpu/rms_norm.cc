// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/cpu/state.h"
#include "kernels/cpu/strided_sum.h"
#include "kernels/ops.h"

namespace cohort::ops::cpu {
namespace {

// out may be x.
void norm_row(float* out, const float* x, const float* weight, int64_t n, float eps) {
  const float squares = cohort::cpu::strided_sum(n, [x](int64_t i) { return x[i] * x[i]; });
  const float scale = 1 / std::sqrt(squares / float(n) + eps);
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

void norm_heads(Stream& stream, Tensor x, int64_t first, int64_t heads, Tensor weight, float eps) {
  const int64_t rows = x.dim(0), width = x.dim(1), dim = weight.dim(0);
  cohort::cpu::for_rows(stream, rows, rows * heads * dim, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++)
      for (int64_t h = 0; h < heads; h++) {
        float* head = x.f32() + r * width + first + h * dim;
        norm_row(head, head, weight.f32(), dim, eps);
      }
  });
}

}  // namespace cohort::ops::cpu
