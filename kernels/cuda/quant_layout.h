// SPDX-License-Identifier: Apache-2.0
// How kernels read quantised weights (quant_view.h).
#pragma once
#include "kernels/cuda/portable.h"
#include "kernels/cuda/quant_view.h"

namespace cohort::cuda {

GPU_FN float quant_scale(const QuantView& w, const unsigned char* record, int slot, int value) {
  const int at = slot * w.values + value;
  const unsigned char* scales = record + w.quant_bytes;
  return w.wide ? reinterpret_cast<const float*>(scales)[at]
                : gpu::to_float(reinterpret_cast<const __half*>(scales)[at]);
}

// Weight (row, column) as f32: scale * q, or scale * q + minimum (docs/arithmetic.md section 1).
// The product is exact. For look-ups, not for products.
GPU_FN float quant_value(const QuantView& w, std::int64_t row, std::int64_t column) {
  const int r = static_cast<int>(row % kQuantPanel), k = static_cast<int>(column % 32);
  const int tile = r / 16, high = r / 8 % 2, g = r % 8;
  const int step = k / 16, lane = g * 4 + k / 4 % 4, byte = k % 4;
  const unsigned char* record =
      w.data + (row / kQuantPanel * w.blocks + column / 32) * w.record_bytes;
  const int slot = g * 4 + tile * 2 + high;
  int q;
  if (w.nibbles)
    q = (record[lane * 16 + tile * 8 + step * 4 + byte] >> (high * 4) & 15) - w.offset;
  else
    q = static_cast<signed char>(record[tile * 512 + lane * 16 + step * 8 + high * 4 + byte]);
  const float value =
      __fmul_rn(quant_scale(w, record, slot, w.halves ? step : 0), static_cast<float>(q));
  return w.minimum ? __fadd_rn(value, quant_scale(w, record, slot, 1)) : value;
}

}  // namespace cohort::cuda
