// SPDX-License-Identifier: Apache-2.0
// The definition: plain scalar code that the vector kernels must match bit for bit.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "kernels/cpu/matmul_job.h"
#include "kernels/cpu/unit_sums.h"
#include "kernels/packed.h"
#include "kernels/panel_scales.h"

namespace cohort {
namespace {

using Lanes = float[kPanelRows];

float plain(DType type, const std::byte* panel, int64_t i) {
  if (type == DType::f32) return reinterpret_cast<const float*>(panel)[i];
  const uint16_t bits = reinterpret_cast<const uint16_t*>(panel)[i];
  return type == DType::bf16 ? bf16_to_float(bits) : half_to_float(bits);
}

// One FMA chain a lane over columns [k0, k1) of a row of x.
void plain_chain(DType type, const std::byte* panel, const float* x, int64_t k0, int64_t k1,
                 Lanes& acc) {
  for (int64_t k = k0; k < k1; k++)
    for (int lane = 0; lane < kPanelRows; lane++)
      acc[lane] = std::fma(plain(type, panel, k * kPanelRows + lane), x[k], acc[lane]);
}

int quant(QuantForm form, const std::byte* block, int lane, int c) {
  const int at = form.nibbles ? c % 16 : c;
  const int byte = int(block[at / 4 * 64 + lane * 4 + at % 4]);
  return (form.nibbles ? byte >> c / 16 * 4 & 15 : int(int8_t(byte))) - form.offset;
}

// Exact integer products of columns [c0, c1) of a block with 16 rows of weights.
void block_dots(QuantForm form, const std::byte* block, const int8_t* x, int c0, int c1,
                int32_t* dots) {
  for (int lane = 0; lane < kPanelRows; lane++) dots[lane] = 0;
  for (int c = c0; c < c1; c++)
    for (int lane = 0; lane < kPanelRows; lane++) dots[lane] += quant(form, block, lane, c) * x[c];
}

// One chain a lane over blocks [b0, b1).
void quant_chain(QuantForm form, const PanelShape& shape, const std::byte* panel, const RowTile& x,
                 int row, int64_t b0, int64_t b1, Lanes& acc) {
  const int halves = form.halves ? 2 : 1, width = kQuantBlock / halves;
  const PanelScales scales(form, shape, panel);
  for (int64_t b = b0; b < b1; b++) {
    const std::byte* block = panel + shape.quants_at + b * shape.quant_bytes;
    const int8_t* q = x.q + b * x.block_bytes + row * kQuantBlock;
    const float d = x.d[b * kRowTile + row], s = x.s[b * kRowTile + row];
    for (int h = 0; h < halves; h++) {
      int32_t dots[kPanelRows];
      block_dots(form, block, q, h * width, (h + 1) * width, dots);
      for (int lane = 0; lane < kPanelRows; lane++)
        acc[lane] = std::fma(scales.scale(b, h, lane) * d, float(dots[lane]), acc[lane]);
    }
    if (!form.minimum) continue;
    for (int lane = 0; lane < kPanelRows; lane++)
      acc[lane] = std::fma(scales.minimum(b, lane), s, acc[lane]);
  }
}

// Columns [begin, end) of a panel in f32, [column][16], at their places in out.
void widen_panel(const MatmulJob& job, const std::byte* panel) {
  const QuantForm form = quant_form(job.type);
  const PanelShape shape = panel_shape(form, job.columns);
  const PanelScales scales(form, shape, panel);
  for (int64_t k = job.begin; k < job.end; k++) {
    const int64_t b = k / kQuantBlock;
    const int c = int(k % kQuantBlock);
    const std::byte* block = panel + shape.quants_at + b * shape.quant_bytes;
    for (int lane = 0; lane < kPanelRows; lane++) {
      const float scaled =
          scales.scale(b, form.halves ? c / 16 : 0, lane) * float(quant(form, block, lane, c));
      job.scratch[k * kPanelRows + lane] = form.minimum ? scaled + scales.minimum(b, lane) : scaled;
    }
  }
}

}  // namespace

void matmul_portable(const MatmulJob& job, int64_t p0, int64_t p1) {
  const bool widen = job.quantized && !job.int8;
  const QuantForm form = quant_form(job.type);
  const PanelShape shape = panel_shape(form, job.columns);
  for (int64_t p = p0; p < p1; p++) {
    const std::byte* panel = job.packed + p * job.panel_bytes;
    if (widen) widen_panel(job, panel);
    for (int64_t row = 0; row < job.rows; row++) {
      UnitSums<float, kPanelRows> sums;
      Lanes acc;
      for (int64_t k = job.begin; k < job.end; k += job.unit_columns) {
        for (float& a : acc) a = 0;
        const int64_t end = k + job.unit_columns;
        const float* x = job.x + row * job.columns;
        if (widen)
          plain_chain(DType::f32, reinterpret_cast<const std::byte*>(job.scratch), x, k, end, acc);
        else if (job.quantized)
          quant_chain(form, shape, panel, row_tile(job.q, row / kRowTile), int(row % kRowTile),
                      k / kQuantBlock, end / kQuantBlock, acc);
        else
          plain_chain(job.type, panel, x, k, end, acc);
        sums.push(acc);
      }
      sums.finish(acc);
      const int64_t lanes = std::min<int64_t>(kPanelRows, job.n - p * kPanelRows);
      std::memcpy(job.y + row * job.stride + p * kPanelRows, acc, size_t(lanes) * sizeof(float));
    }
  }
}

}  // namespace cohort
