// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/state.h"
#include "kernels/ops.h"

namespace cohort::ops::cpu {

void add(Stream& stream, Tensor x, Tensor y) {
  float* into = x.f32();
  const float* from = y.f32();
  const int64_t n = x.elements();
  cohort::cpu::for_rows(stream, n, n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) into[i] += from[i];
  });
}

}  // namespace cohort::ops::cpu
