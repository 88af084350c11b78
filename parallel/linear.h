// SPDX-License-Identifier: Apache-2.0
// Matrix products over the ranks of a tensor-parallel group. Two of them in a row need one
// all-reduce: the column-parallel one leaves its output cut, exactly as the row-parallel one wants
// its input. (Shoeybi et al., Megatron-LM, arXiv 1909.08053.)
#pragma once
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/stream.h"
#include "base/tensor.h"
#include "kernels/activations.h"
#include "kernels/matrix.h"
#include "parallel/group.h"

namespace cohort {

// Memory that the products of a step share, taken once. The layers run one after another, so one
// of it serves all. tp: whose sums are made of it.
struct LinearScratch {
  LinearScratch(Stream& stream, Group tp, int64_t max_rows, int64_t max_columns,
                ActivationMode mode, int64_t partial_floats)
      : activations(stream, max_rows, max_columns, mode),
        partials(tp.allocate(stream.device(), size_t(partial_floats) * sizeof(float))) {}
  Activations activations;
  Buffer partials;  // f32, the pieces of one row-parallel product
};

// y = x W^T, W cut by output rows: each rank computes some of y's columns from all of x.
//
//                    W^T [k, n]                    y [tokens, n]
//   x [tokens, k]   ┌────────┬──────┬──────┐      ┌────────┬──────┬──────┐
//   ┌──────────┐    │ rank 0 │  1   │  2   │      │ rank 0 │  1   │  2   │
//   │ everyone │  x │        │      │      │  =   └────────┴──────┴──────┘
//   └──────────┘    └────────┴──────┴──────┘
//
// Moves nothing.
class ColumnParallel {
 public:
  // Borrows w: this rank's rows, one unit of columns.
  explicit ColumnParallel(const Matrix& w) : w_(&w) {}

  int64_t output() const { return w_->rows(); }  // of this rank
  // y A or f32 [tokens, output], x A [tokens, k].
  void forward(Stream& stream, LinearScratch& scratch, Tensor y, Tensor x) const;
  // The same of what has been prepared.
  void multiply(Stream& stream, const Activations& x, Tensor y) const;

 private:
  const Matrix* w_;
};

// y = x W^T, W cut by input columns: each rank multiplies its columns of x, everyone adds up.
//
//   x [tokens, k]               W^T [k, n]           y [tokens, n]
//   ┌────────┬──────┬──────┐    ┌──────────┐         ┌──────────┐
//   │ rank 0 │  1   │  2   │  x │  rank 0  │    =    │ everyone │  rank 0 + 1 + 2, summed unit by
//   └────────┴──────┴──────┘    ├──────────┤         └──────────┘  unit in the order of the tree
//                               │    1     │
//                               ├──────────┤
//                               │    2     │
//                               └──────────┘
//
// Moves, per token, 4 n bytes from each rank to each other for every subtree of units that it owns
// (one where the cut is even).
class RowParallel {
 public:
  // Borrows w (this rank's columns; cut into its units where the group's sums are ordered, else
  // whole), the group and the plan of who owns which units.
  RowParallel(const Matrix& w, Group& group, const TreePlan& plan);

  // This rank's pieces of the sum, counted from its first unit; none where sums are not ordered.
  std::span<const UnitRange> ranges() const { return pieces_; }
  // Floats of scratch per token and output column.
  int pieces() const { return int(pieces_.size()); }
  // y [tokens, n]: f32 where the group's sums are ordered, else A. x A [tokens, k of this rank].
  Started forward(Stream& stream, LinearScratch& scratch, Tensor y, Tensor x) const;
  // The same of what scratch.activations holds.
  Started multiply(Stream& stream, LinearScratch& scratch, Tensor y) const;

 private:
  const Matrix* w_;
  Group* group_;
  const TreePlan* plan_;
  std::vector<UnitRange> pieces_;  // of this rank, counted from its first unit
};

}  // namespace cohort
