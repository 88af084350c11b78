// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/isa_table.h"
#include "kernels/cpu/state.h"
#include "kernels/ops.h"

namespace cohort::ops::cpu {

void prepare(Stream& stream, Activations& out, Tensor x) {
  out.set_x(x);
  const int64_t rows = x.dim(0), columns = x.dim(1);
  // Rows that are not whole blocks can only meet plain weights.
  if (out.mode() == ActivationMode::f32 || columns % 32 != 0) return;
  const QuantizedRows q = quantized_rows(out.storage().data(), rows, columns);
  QuantizeBlock* block = cpu_kernels(stream.isa()).quantize;
  const auto one = [&](int64_t row, int64_t b) {
    const RowTile tile = row_tile(q, row / kRowTile);
    const int64_t r = row % kRowTile,
                  slot = row / kRowTile * kRowTile * q.blocks + b * kRowTile + r;
    block(x.f32() + row * columns + b * 32,
          const_cast<int8_t*>(tile.q) + b * tile.block_bytes + r * 32, q.d + slot, q.sum + slot);
    q.s[slot] = q.d[slot] * float(q.sum[slot]);
  };
  // By blocks of rows: one row is shared, too.
  cohort::cpu::for_rows(stream, rows * q.blocks, rows * columns, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) one(i / q.blocks, i % q.blocks);
  });
}

}  // namespace cohort::ops::cpu
