// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/isa_table.h"
#include "kernels/cpu/state.h"
#include "kernels/ops.h"

namespace cohort::ops::cpu {

void silu_mul(Stream& stream, Tensor out, Tensor gate_up) {
  const int64_t rows = out.dim(0), n = out.dim(1);
  SiluMul* kernel = cpu_kernels(stream.isa()).silu_mul;
  cohort::cpu::for_rows(stream, rows, rows * n * 2, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      const float* gate = gate_up.f32() + r * 2 * n;
      kernel(out.f32() + r * n, gate, gate + n, n);
    }
  });
}

}  // namespace cohort::ops::cpu
