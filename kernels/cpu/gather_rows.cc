// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "kernels/cpu/state.h"
#include "kernels/ops.h"

namespace cohort::ops::cpu {

void gather_rows(Stream&, Tensor out, Tensor x, Tensor rows) {
  const int64_t width = x.dim(1);
  for (int64_t i = 0; i < rows.dim(0); i++) {
    const int64_t row = rows.i32()[i];
    COHORT_CHECK(row >= 0 && row < x.dim(0));
    std::copy_n(x.f32() + row * width, width, out.f32() + i * width);
  }
}

void interleave(Stream& stream, Tensor out, Tensor gathered, std::span<const int64_t> widths) {
  const int64_t rows = out.dim(0), columns = out.dim(1);
  cohort::cpu::for_rows(stream, rows, out.elements(), [&](int64_t begin, int64_t end) {
    int64_t first = 0;  // column of the block
    for (const int64_t width : widths) {
      const float* block = gathered.f32() + rows * first;
      for (int64_t i = begin; i < end; i++)
        std::copy_n(block + i * width, width, out.f32() + i * columns + first);
      first += width;
    }
  });
}

}  // namespace cohort::ops::cpu
