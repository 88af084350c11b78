// SPDX-License-Identifier: Apache-2.0
#include "parallel/linear.h"

#include "kernels/ops.h"

namespace cohort {
namespace {

constexpr UnitRange kWhole[] = {{0, 1}};

Tensor one_piece(const Tensor& y) { return Tensor(y.data(), y.dtype(), {1, y.dim(0), y.dim(1)}); }

}  // namespace

void ColumnParallel::forward(Stream& stream, LinearScratch& scratch, Tensor y, Tensor x) const {
  ops::prepare(stream, scratch.activations, x);
  multiply(stream, scratch.activations, y);
}

void ColumnParallel::multiply(Stream& stream, const Activations& x, Tensor y) const {
  ops::matmul(stream, one_piece(y), x, *w_, kWhole);
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
  return multiply(stream, scratch, y);
}

Started RowParallel::multiply(Stream& stream, LinearScratch& scratch, Tensor y) const {
  const Activations& x = scratch.activations;
  if (!group_->ordered()) {
    ops::matmul(stream, one_piece(y), x, *w_, kWhole);
    return group_->add_up(y);
  }
  if (group_->size() == 1) {  // its one piece is the sum
    ops::matmul(stream, one_piece(y), x, *w_, pieces_);
    return Started(Status());
  }
  const Tensor partial(scratch.partials.data(), DType::f32, {pieces(), y.dim(0), y.dim(1)});
  COHORT_CHECK_LE(size_t(partial.bytes()), scratch.partials.size());
  ops::matmul(stream, partial, x, *w_, pieces_);
  return group_->all_reduce(*plan_, partial, y);
}

}  // namespace cohort
