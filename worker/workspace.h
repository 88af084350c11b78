// SPDX-License-Identifier: Apache-2.0
// The memory in which a step computes: taken at load for the largest step, reused by every layer
// of every step.
#pragma once
#include <cstdint>
#include <memory>
#include <utility>

#include "base/buffer.h"
#include "base/tensor.h"
#include "model/config.h"
#include "parallel/experts.h"
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
  // [rows, width] for less width than it was made for, too.
  Tensor view(int64_t rows, int64_t width) const {
    COHORT_CHECK_LE(rows * width, max_rows_ * width_);
    return Tensor(memory_.data(), dtype_, {rows, width});
  }
  Tensor rows(int64_t n) const {
    COHORT_CHECK_LE(n, max_rows_);
    return Tensor(memory_.data(), dtype_, {n, width_});
  }

 private:
  int64_t max_rows_, width_;
  DType dtype_;
  Buffer memory_;
};

// Of layers with experts.
struct ExpertShape {
  int64_t rows = 0;  // tokens of this group
  int64_t hidden = 0;
  int experts = 0, per_token = 0;
  int64_t ffn = 0;    // width of one expert
  int pieces = 1;     // of the tree over experts that this rank sends
  int most_held = 0;  // experts that this rank may have, copies among them
  ActivationMode mode = ActivationMode::int8;
};

struct ExpertWorkspace {
  // dp: the ranks with this tp index.
  ExpertWorkspace(Stream& stream, Group tp, Group dp, const ExpertShape& s);

  std::unique_ptr<ExpertExchange> exchange;
  RowBuffer logits;         // f32 [tokens, experts]
  RowBuffer chosen;         // i32 [tokens, k]
  RowBuffer weights;        // f32 [tokens, k]
  RowBuffer gate_up;        // A [rows of the exchange, 2 ffn]
  RowBuffer ffn;            // A [rows of the exchange, ffn]
  RowBuffer outputs;        // A [rows of the exchange, hidden]
  Activations activations;  // of the experts' inputs
  Buffer pieces;            // f32 [pieces, tokens, hidden]
  RowBuffer sum;            // f32 [tokens, hidden]
  RowBuffer shared;         // f32 [tokens, hidden]: of the shared expert
  RowBuffer gate;           // f32 [tokens, 1]
};

// Of latent attention, for this rank's heads.
struct LatentShape {
  int64_t rows = 0;
  int64_t heads = 0;
  LatentConfig config;  // kv_rank 0: none
  ActivationMode mode = ActivationMode::int8;
};

// All f32: latent attention is computed on the CPU alone.
struct LatentWorkspace {
  LatentWorkspace(Stream& stream, const LatentShape& s);

  RowBuffer q_low;               // [tokens, q_rank]
  RowBuffer q;                   // [tokens, heads * (nope + rope)]
  RowBuffer kv;                  // [tokens, kv_rank + rope]
  RowBuffer narrow;              // [heads * tokens, nope or value]
  RowBuffer wide;                // [heads * tokens, kv_rank]
  RowBuffer mixed;               // [tokens, heads * value]
  std::vector<int32_t> offsets;  // [heads + 1]: rows of each head
  Activations activations;       // of one head
};

// Widths are those of this rank's shard.
struct WorkspaceShape {
  int64_t rows = 0;
  int64_t hidden = 0;
  int64_t q = 0;       // heads * dim
  int64_t qkv = 0;     // (heads + 2 kv_heads) * dim
  int64_t ffn = 0;     // of the widest layer, or shared expert
  int64_t pieces = 1;  // most partial sums of a row-parallel product
  ActivationMode mode = ActivationMode::int8;
  ExpertShape experts;   // none: experts == 0
  LatentShape latent;    // none: kv_rank == 0
  bool squares = false;  // rows of heads are normed
};

struct Workspace {
  Workspace(Stream& stream, Group tp, Group dp, const WorkspaceShape& s);

  // All A, apart from `sum`, which is f32 where the group's sums are ordered.
  RowBuffer h;        // [tokens, hidden] what a block reads
  RowBuffer sum;      // [tokens, hidden] what a block adds to the residual stream
  RowBuffer qkv;      // [tokens, (heads + 2 kv_heads) * dim]
  RowBuffer q;        // [tokens, heads * dim] rotated
  RowBuffer mixed;    // [tokens, heads * dim] attention's weighted values
  RowBuffer gate_up;  // [tokens, 2 ffn]
  RowBuffer ffn;      // [tokens, ffn]
  LinearScratch linear;
  std::unique_ptr<ExpertWorkspace> experts;  // null where the stage has none
  std::unique_ptr<LatentWorkspace> latent;   // likewise
  Buffer squares;                            // f32 [pieces + 1][2 tokens]: of queries and of keys
};

}  // namespace cohort
