// SPDX-License-Identifier: Apache-2.0
// The memory in which a step computes: taken at load for the largest step, reused by every layer
// of every step.
#pragma once
#include <cstdint>
#include <utility>

#include "base/buffer.h"
#include "base/tensor.h"
#include "parallel/linear.h"

namespace cohort {

// [max_rows, width] in memory of a device; rows(n) is its first n rows.
class RowBuffer {
 public:
  RowBuffer(Buffer memory, DType dtype, int64_t max_rows, int64_t width)
      : max_rows_(max_rows), width_(width), dtype_(dtype), memory_(std::move(memory)) {}
  RowBuffer(Device& device, DType dtype, int64_t max_rows, int64_t width)
      : RowBuffer(device.allocate(size_t(bytes_of(dtype, max_rows * width))), dtype, max_rows,
                  width) {}

  int64_t width() const { return width_; }
  Tensor rows(int64_t n) const {
    COHORT_CHECK_LE(n, max_rows_);
    return Tensor(memory_.data(), dtype_, {n, width_});
  }

 private:
  int64_t max_rows_, width_;
  DType dtype_;
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
  Workspace(Stream& stream, Group tp, const WorkspaceShape& s);

  // All A, apart from `sum`, which is f32 where the group's sums are ordered.
  RowBuffer h;        // [tokens, hidden] what a block reads
  RowBuffer sum;      // [tokens, hidden] what a block adds to the residual stream
  RowBuffer qkv;      // [tokens, (heads + 2 kv_heads) * dim]
  RowBuffer q;        // [tokens, heads * dim] rotated
  RowBuffer mixed;    // [tokens, heads * dim] attention's weighted values
  RowBuffer gate_up;  // [tokens, 2 ffn]
  RowBuffer ffn;      // [tokens, ffn]
  LinearScratch linear;
};

}  // namespace cohort
