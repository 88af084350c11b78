// SPDX-License-Identifier: Apache-2.0
#include "parallel/vocabulary.h"

#include <cstring>
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

Completed VocabularyEmbedding::forward(Stream& stream, LinearScratch& scratch, Tensor x,
                                       Tensor ids) const {
  const Tensor mine(scratch.partials.data(), DType::f32, {x.dim(0), x.dim(1)});
  COHORT_CHECK_LE(size_t(mine.bytes()), scratch.partials.size());
  ops::embedding(stream, mine, *table_, ids, first_row_);
  return group_->all_reduce(plan_, mine, x);
}

VocabularyHead::VocabularyHead(const Matrix& table, std::vector<Slice> rows, int64_t max_rows,
                               Group& group)
    : head_(table),
      rows_(std::move(rows)),
      group_(&group),
      local_(size_t(max_rows * table.rows()) * sizeof(float)),
      gathered_(size_t(max_rows * rows_.back().end) * sizeof(float)),
      bytes_(rows_.size()) {
  COHORT_CHECK_EQ(int(rows_.size()), group.size());
  COHORT_CHECK_EQ(table.rows(), rows_[size_t(group.rank())].size());
}

Task VocabularyHead::forward(Stream& stream, LinearScratch& scratch, Tensor logits, Tensor x) {
  const int64_t n = x.dim(0);
  const Tensor mine(local_.data(), DType::f32, {n, head_.output()});
  head_.forward(stream, scratch, mine, x);
  for (size_t r = 0; r < rows_.size(); r++)
    bytes_[r] = n * rows_[r].size() * int64_t(sizeof(float));
  co_await group_->all_gather(mine, gathered_.data(), bytes_);
  interleave(stream, logits);
}

// gathered [rank][n, rows of the rank] -> logits [n, vocab].
void VocabularyHead::interleave(Stream& stream, Tensor logits) const {
  const int64_t n = logits.dim(0), vocab = logits.dim(1);
  stream.threads().parallel_for(n, [&](int64_t begin, int64_t end) {
    for (const Slice& rows : rows_) {
      const float* block = gathered_.as<float>() + n * rows.begin;
      for (int64_t i = begin; i < end; i++)
        std::memcpy(logits.f32() + i * vocab + rows.begin, block + i * rows.size(),
                    size_t(rows.size()) * sizeof(float));
    }
  });
}

}  // namespace cohort
