// SPDX-License-Identifier: Apache-2.0
#include "parallel/linear.h"

#include "kernels/ops.h"

namespace cohort {
namespace {

constexpr UnitRange kWhole[] = {{0, 1}};

}  // namespace

void ColumnParallel::forward(Stream& stream, LinearScratch& scratch, Tensor y, Tensor x) const {
  ops::prepare(stream, scratch.activations, x);
  const Tensor one_piece(y.data(), y.dtype(), {1, y.dim(0), y.dim(1)});
  ops::matmul(stream, one_piece, scratch.activations, *w_, kWhole);
}

RowParallel::RowParallel(const Matrix& w, Group& group, const TreePlan& plan)
    : w_(&w), group_(&group), plan_(&plan) {
  if (!group.ordered()) {
    COHORT_CHECK_EQ(w.units(), 1);
    return;
  }
  const std::vector<UnitRange>& owned = plan.pieces(group.rank());
  COHORT_CHECK(!owned.empty());
  const int first = owned.front().begin;
  for (const UnitRange& piece : owned) pieces_.push_back({piece.begin - first, piece.end - first});
  COHORT_CHECK_EQ(w.units(), pieces_.back().end);
}

Started RowParallel::forward(Stream& stream, LinearScratch& scratch, Tensor y, Tensor x) const {
  ops::prepare(stream, scratch.activations, x);
  if (!group_->ordered()) {
    ops::matmul(stream, Tensor(y.data(), y.dtype(), {1, y.dim(0), y.dim(1)}), scratch.activations,
                *w_, kWhole);
    return group_->add_up(y);
  }
  const Tensor partial(scratch.partials.data(), DType::f32, {pieces(), y.dim(0), y.dim(1)});
  COHORT_CHECK_LE(size_t(partial.bytes()), scratch.partials.size());
  ops::matmul(stream, partial, scratch.activations, *w_, pieces_);
  return group_->all_reduce(*plan_, partial, y);
}

}  // namespace cohort
