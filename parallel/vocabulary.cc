// SPDX-License-Identifier: Apache-2.0
#include "parallel/vocabulary.h"

#include <utility>

#include "kernels/ops.h"

namespace cohort {
namespace {

std::vector<UnitRange> one_unit_each(int ranks) {
  std::vector<UnitRange> owned;
  for (int r = 0; r < ranks; r++) owned.push_back({r, r + 1});
  return owned;
}

}  // namespace

VocabularyEmbedding::VocabularyEmbedding(const Matrix& table, Slice rows, Group& group)
    : table_(&table),
      first_row_(rows.begin),
      group_(&group),
      plan_(group.size(), one_unit_each(group.size())) {
  COHORT_CHECK_EQ(table.rows(), rows.size());
}

Started VocabularyEmbedding::forward(Stream& stream, LinearScratch& scratch, Tensor x,
                                     Tensor ids) const {
  if (!group_->ordered()) {
    ops::embedding(stream, x, *table_, ids, first_row_);
    return group_->add_up(x);
  }
  const Tensor mine(scratch.partials.data(), DType::f32, {x.dim(0), x.dim(1)});
  COHORT_CHECK_LE(size_t(mine.bytes()), scratch.partials.size());
  ops::embedding(stream, mine, *table_, ids, first_row_);
  return group_->all_reduce(plan_, mine, x);
}

VocabularyHead::VocabularyHead(Device& device, const Matrix& table, std::vector<Slice> rows,
                               int64_t max_rows, Group& group)
    : head_(table),
      rows_(std::move(rows)),
      group_(&group),
      local_(device.allocate(size_t(max_rows * table.rows()) * sizeof(float))),
      gathered_(device.allocate(size_t(max_rows * rows_.back().end) * sizeof(float))),
      bytes_(rows_.size()) {
  COHORT_CHECK_EQ(int(rows_.size()), group.size());
  COHORT_CHECK_EQ(table.rows(), rows_[size_t(group.rank())].size());
  for (const Slice& slice : rows_) widths_.push_back(slice.size());
}

Tensor VocabularyHead::part(Stream& stream, const Activations& x) const {
  const Tensor mine(local_.data(), DType::f32, {x.x().dim(0), head_.output()});
  head_.multiply(stream, x, mine);
  return mine;
}

Task VocabularyHead::forward(Stream& stream, const Activations& x, Tensor logits) {
  const int64_t n = x.x().dim(0);
  const Tensor mine = part(stream, x);
  for (size_t r = 0; r < widths_.size(); r++) bytes_[r] = n * widths_[r] * int64_t(sizeof(float));
  co_await group_->all_gather(mine, gathered_.data(), bytes_);
  ops::interleave(stream, logits, Tensor(gathered_.data(), DType::f32, {n * vocab()}), widths_);
}

}  // namespace cohort
