// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/prepare.h"

#include "kernels/cpu/isa_table.h"
#include "kernels/cpu/state.h"
#include "kernels/ops.h"

namespace cohort {

cpu::RowPreparer::RowPreparer(Stream& stream, Activations& out, Tensor x)
    : x_(x.f32()), columns_(x.dim(1)) {
  out.set_x(x);
  if (out.mode() == ActivationMode::bf16) {
    rounded_ = bf16_rows(out.storage().data(), x.dim(0), columns_);
    round_ = cpu_kernels(stream.isa()).round_bf16;
  }
  // Rows that are not whole blocks can only meet plain weights.
  if (!wants_int8(out.mode()) || columns_ % 32 != 0) return;
  quantized_ = quantized_rows(out.storage().data(), x.dim(0), columns_);
  quantize_ = cpu_kernels(stream.isa()).quantize;
  if (quantized_.tiled) tile_ = cpu_kernels(stream.isa()).tile_row;
}

void cpu::RowPreparer::make(int64_t row, int64_t begin, int64_t end) const {
  if (round_) {
    const int64_t at = row * rounded_.stride + begin;
    round_(x_ + row * columns_ + begin, end - begin, rounded_.wide + at, rounded_.narrow + at);
  }
  if (!quantize_) return;
  const int64_t first = begin / 32, blocks = end / 32 - first;
  const QuantizedBlocks out = quantized_blocks(quantized_, row, first);
  quantize_(x_ + row * columns_ + begin, blocks, out);
  if (tile_) tile_(out.q, blocks, out.block_bytes, quantized_.tiled + (out.q - quantized_.q));
}

void ops::cpu::prepare(Stream& stream, Activations& out, Tensor x) {
  const cohort::cpu::RowPreparer rows(stream, out, x);
  if (!rows.any()) return;
  cohort::cpu::for_columns(
      stream, x.dim(0), x.dim(1), x.elements(),
      [&](int64_t row, int64_t begin, int64_t end) { rows.make(row, begin, end); });
}

}  // namespace cohort
