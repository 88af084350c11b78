// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/isa_table.h"
#include "kernels/cpu/state.h"
#include "kernels/ops.h"

namespace cohort::ops::cpu {

void find_not_finite(Stream& stream, Tensor errors, Tensor x, int32_t code) {
  const int64_t rows = x.dim(0), n = x.dim(1);
  MeasureRow* measure = cpu_kernels(stream.isa()).rows.measure;
  cohort::cpu::for_rows(stream, rows, rows * n, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      int32_t& error = errors.i32()[r];
      if (error == -1 && !finite(measure(x.f32() + r * n, n))) error = code;
    }
  });
}

}  // namespace cohort::ops::cpu
