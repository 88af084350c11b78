// SPDX-License-Identifier: Apache-2.0
// From the residual stream to logits: final norm and the vocabulary-parallel table.
#pragma once
#include "base/task.h"
#include "base/tensor.h"
#include "parallel/vocabulary.h"
#include "worker/step.h"

namespace cohort {

class Head {
 public:
  // norm [hidden] and table borrowed. max_rows: of one call.
  Head(Tensor norm, float eps, const Matrix& table, std::vector<Slice> vocab_rows, int64_t max_rows,
       Group& tp)
      : norm_(norm), eps_(eps), table_(table, std::move(vocab_rows), max_rows, tp) {}

  int64_t vocab() const { return table_.vocab(); }
  // logits [rows.size(), vocab] of these rows of x [tokens, hidden], on every rank of the stage.
  Task forward(Step& step, Tensor logits, Tensor x, std::span<const int64_t> rows);

 private:
  const Tensor norm_;
  const float eps_;
  VocabularyHead table_;
};

}  // namespace cohort
