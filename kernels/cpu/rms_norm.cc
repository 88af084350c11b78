// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/isa_table.h"
#include "kernels/cpu/norm_scale.h"
#include "kernels/cpu/state.h"
#include "kernels/ops.h"

namespace cohort::ops::cpu {
namespace {

// out may be x.
void norm_row(const RowKernels& kernels, float* out, const float* x, const float* weight, int64_t n,
              float eps) {
  const float squares = kernels.measure(x, n).squares;
  kernels.scale(out, x, cohort::cpu::norm_scale(squares, n, eps), weight, n);
}

}  // namespace

void rms_norm(Stream& stream, Tensor out, Tensor x, Tensor weight, float eps) {
  const int64_t rows = x.dim(0), n = x.dim(1);
  const RowKernels& kernels = cpu_kernels(stream.isa()).rows;
  cohort::cpu::for_rows(stream, rows, rows * n, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++)
      norm_row(kernels, out.f32() + r * n, x.f32() + r * n, weight.f32(), n, eps);
  });
}

void norm_heads(Stream& stream, Tensor x, int64_t first, int64_t heads, Tensor weight, float eps) {
  const int64_t rows = x.dim(0), width = x.dim(1), dim = weight.dim(0);
  const RowKernels& kernels = cpu_kernels(stream.isa()).rows;
  cohort::cpu::for_rows(stream, rows, rows * heads * dim, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++)
      for (int64_t h = 0; h < heads; h++) {
        float* head = x.f32() + r * width + first + h * dim;
        norm_row(kernels, head, head, weight.f32(), dim, eps);
      }
  });
}

}  // namespace cohort::ops::cpu
