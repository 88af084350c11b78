// SPDX-License-Identifier: Apache-2.0
// The one place where rows become the input of products, some columns of a row at a time: so ops
// that make a row can prepare it while it is in the cache.
#pragma once
#include <cstdint>

#include "base/function_ref.h"
#include "base/stream.h"
#include "base/tensor.h"
#include "kernels/activations.h"
#include "kernels/cpu/bf16_rows.h"

namespace cohort::cpu {

class RowPreparer {
 public:
  // Makes x [rows, columns] f32 what `out` holds: x is complete, or becomes so range by range.
  RowPreparer(Stream& stream, Activations& out, Tensor x);

  // Whether products need anything but x itself.
  bool any() const { return quantize_ || round_; }
  // Columns [begin, end) of a row, which are complete: whole blocks of 32, or the row's last ones.
  // Any thread; different threads have different ranges.
  void make(int64_t row, int64_t begin, int64_t end) const;

 private:
  const float* x_;
  int64_t columns_;
  Quantize* quantize_ = nullptr;
  TileRow* tile_ = nullptr;
  QuantizedRows quantized_{};
  RoundBf16* round_ = nullptr;
  Bf16Rows rounded_{};
};

}  // namespace cohort::cpu
