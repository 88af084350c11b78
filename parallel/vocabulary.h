// SPDX-License-Identifier: Apache-2.0
// The two ends of the model over a tensor-parallel group: both tables are cut by vocabulary rows.
//
//   embedding: a rank has some rows          head: a rank has some columns of the logits
//   ids [tokens]  ┌────────┐                             ┌────────┬──────┐
//        │        │ rank 0 │ row or zeros    x [n, k]  x │ rank 0 │  1   │ = logits, gathered
//        └──────► ├────────┤   └─ sum ─► x               └────────┴──────┘
//                 │   1    │
//                 └────────┘
#pragma once
#include <cstdint>
#include <vector>

#include "base/stream.h"
#include "base/task.h"
#include "base/tensor.h"
#include "base/unit_tree.h"
#include "kernels/matrix.h"
#include "parallel/group.h"
#include "parallel/linear.h"
#include "parallel/shard.h"

namespace cohort {

// Exactly one rank has a token's row and the others add +0, so the sum is that row, bit for bit.
// Moves 4 * hidden bytes per token from each rank to each other.
class VocabularyEmbedding {
 public:
  // Borrows the table (this rank's rows) and the group. rows: which they are.
  VocabularyEmbedding(const Matrix& table, Slice rows, Group& group);

  // x f32 [tokens, hidden], ids i32 [tokens].
  Started forward(Stream& stream, LinearScratch& scratch, Tensor x, Tensor ids) const;

 private:
  const Matrix* table_;
  int64_t first_row_;
  Group* group_;
  TreePlan plan_;  // one unit per rank
};

// forward moves 4 * vocab / ranks bytes per row from each rank to each other.
class VocabularyHead {
 public:
  // Borrows the table and the group. rows: of every rank of the group.
  VocabularyHead(Device& device, const Matrix& table, std::vector<Slice> rows, int64_t max_rows,
                 Group& group);

  int64_t vocab() const { return rows_.back().end; }
  const std::vector<Slice>& parts() const { return rows_; }  // of every rank
  Group& group() const { return *group_; }
  // This rank's columns of the logits, f32 [n, its rows of the table], until the next call. x holds
  // [n, hidden], n <= max_rows.
  Tensor part(Stream& stream, const Activations& x) const;
  // logits f32 [n, vocab] on every rank.
  Task forward(Stream& stream, const Activations& x, Tensor logits);

 private:
  ColumnParallel head_;
  const std::vector<Slice> rows_;
  Group* group_;
  Buffer local_, gathered_;      // f32 [n, rows of this rank]; those of all ranks back to back
  std::vector<int64_t> widths_;  // columns of each rank
  std::vector<int64_t> bytes_;   // per rank, of the current call
};

}  // namespace cohort
