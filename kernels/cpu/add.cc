// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/sigmoid.h"
#include "kernels/cpu/state.h"
#include "kernels/ops.h"

namespace cohort::ops::cpu {

void add(Stream& stream, Tensor y, Tensor x) {
  float* into = y.f32();
  const float* from = x.f32();
  const int64_t n = y.elements();
  cohort::cpu::for_rows(stream, n, n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) into[i] += from[i];
  });
}

void add_bias(Stream& stream, Tensor y, Tensor bias) {
  const int64_t rows = y.dim(0), n = y.dim(1);
  cohort::cpu::for_rows(stream, rows, rows * n, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      float* row = y.f32() + r * n;
      for (int64_t i = 0; i < n; i++) row[i] += bias.f32()[i];
    }
  });
}

void gate_rows(Stream& stream, Tensor y, Tensor gate) {
  const int64_t rows = y.dim(0), n = y.dim(1);
  cohort::cpu::for_rows(stream, rows, rows * n, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      float* row = y.f32() + r * n;
      const float open = sigmoid(gate.f32()[r]);
      for (int64_t i = 0; i < n; i++) row[i] = open * row[i];
    }
  });
}

}  // namespace cohort::ops::cpu
