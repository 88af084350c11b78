// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/isa_table.h"
#include "kernels/cpu/state.h"
#include "kernels/ops.h"

namespace cohort::ops::cpu {

void add_residual(Stream& stream, Tensor x, Tensor y, Tensor errors, int32_t code) {
  const int64_t rows = x.dim(0), n = x.dim(1);
  AddRow* add = cpu_kernels(stream.isa()).rows.add;
  cohort::cpu::for_rows(stream, rows, rows * n, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      const RowSums sums = add(x.f32() + r * n, y.f32() + r * n, n);
      int32_t& error = errors.i32()[r];
      if (error == -1 && !finite(sums)) error = code;
    }
  });
}

void add_rms_norm(Stream& stream, Tensor out, Tensor x, Tensor y, Tensor weight, float eps,
                  Tensor errors, int32_t code) {
  add_residual(stream, x, y, errors, code);
  rms_norm(stream, out, x, weight, eps);
}

}  // namespace cohort::ops::cpu
