// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/isa_table.h"
#include "kernels/cpu/state.h"
#include "kernels/ops.h"

namespace cohort::ops::cpu {

void silu_mul(Stream& stream, Tensor out, Tensor gate_up) {
  const int64_t rows = out.dim(0), n = out.dim(1);
  SiluMul* kernel = cpu_kernels(stream.isa()).silu_mul;
  cohort::cpu::for_columns(stream, rows, n, rows * n * 2,
                           [&](int64_t row, int64_t begin, int64_t end) {
                             const float* gate = gate_up.f32() + row * 2 * n + begin;
                             kernel(out.f32() + row * n + begin, gate, gate + n, end - begin);
                           });
}

}  // namespace cohort::ops::cpu
