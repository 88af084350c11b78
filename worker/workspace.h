// SPDX-License-Identifier: Apache-2.0
// The memory in which a step computes: taken at load for the largest step, reused by every layer
// of every step.
#pragma once
#include <cstdint>

#include "base/buffer.h"
#include "base/tensor.h"
#include "parallel/linear.h"

namespace cohort {

// f32 [max_rows, width]; rows(n) is its first n rows.
class RowBuffer {
 public:
  RowBuffer(int64_t max_rows, int64_t width)
      : max_rows_(max_rows), width_(width), memory_(size_t(max_rows * width) * sizeof(float)) {}

  int64_t width() const { return width_; }
  Tensor rows(int64_t n) const {
    COHORT_CHECK_LE(n, max_rows_);
    return Tensor(memory_.data(), DType::f32, {n, width_});
  }

 private:
  int64_t max_rows_, width_;
  Buffer memory_;
};

// Widths are those of this rank's shard.
struct WorkspaceShape {
  int64_t rows = 0;
  int64_t hidden = 0;
  int64_t q = 0;    // heads * dim
  int64_t qkv = 0;  // (heads + 2 kv_heads) * dim
  int64_t ffn = 0;
  int64_t pieces = 1;  // most partial sums of a row-parallel product
  ActivationMode mode = ActivationMode::int8;
};

struct Workspace {
  explicit Workspace(const WorkspaceShape& s);

  RowBuffer h;        // [tokens, hidden] what a block reads and writes
  RowBuffer qkv;      // [tokens, (heads + 2 kv_heads) * dim]
  RowBuffer q;        // [tokens, heads * dim] rotated
  RowBuffer mixed;    // [tokens, heads * dim] attention's weighted values
  RowBuffer gate_up;  // [tokens, 2 ffn]
  RowBuffer ffn;      // [tokens, ffn]
  LinearScratch linear;
};

}  // namespace cohort
