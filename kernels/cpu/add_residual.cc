// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/state.h"
#include "kernels/ops.h"

namespace cohort::ops::cpu {

void add_residual(Stream& stream, Tensor x, Tensor y, Tensor errors, int32_t code) {
  float* into = x.f32();
  const float* from = y.f32();
  const int64_t n = x.elements();
  cohort::cpu::for_rows(stream, n, n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) into[i] += from[i];
  });
  find_not_finite(stream, errors, x, code);
}

void add_rms_norm(Stream& stream, Tensor out, Tensor x, Tensor y, Tensor weight, float eps,
                  Tensor errors, int32_t code) {
  add_residual(stream, x, y, errors, code);
  rms_norm(stream, out, x, weight, eps);
}

}  // namespace cohort::ops::cpu
