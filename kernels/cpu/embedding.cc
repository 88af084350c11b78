// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cpu/state.h"
#include "kernels/ops.h"
#include "kernels/packed.h"

namespace cohort::ops::cpu {
namespace {

void look_up(const Matrix& table, int64_t row, float* out) {
  for (const MatrixPart& part : table.parts()) {
    if (row >= part.rows) {
      row -= part.rows;
      continue;
    }
    const std::byte* panel =
        part.packed.data() + row / kPanelRows * panel_bytes(part.dtype, table.columns());
    unpack_row(part.dtype, table.columns(), panel, int(row % kPanelRows), out);
    for (int64_t i = 0; i < table.columns(); i++) out[i] = out[i] + 0.0f;
    return;
  }
}

}  // namespace

void embedding(Stream& stream, Tensor out, const Matrix& table, Tensor ids, int64_t first_row) {
  const int64_t tokens = ids.dim(0), hidden = table.columns(), rows = table.rows();
  cohort::cpu::for_rows(stream, tokens, tokens * hidden, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++) {
      const int64_t row = ids.i32()[t] - first_row;
      float* to = out.f32() + t * hidden;
      if (row >= 0 && row < rows)
        look_up(table, row, to);
      else
        std::fill_n(to, hidden, 0.0f);
    }
  });
}

}  // namespace cohort::ops::cpu
