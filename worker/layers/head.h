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
  Head(Device& device, Tensor norm, float eps, const Matrix& table, std::vector<Slice> vocab_rows,
       int64_t max_rows, Group& tp)
      : norm_(norm),
        eps_(eps),
        gathered_(device, DType::f32, max_rows, norm.dim(0)),
        table_(device, table, std::move(vocab_rows), max_rows, tp) {}

  int64_t vocab() const { return table_.vocab(); }
  const std::vector<Slice>& parts() const { return table_.parts(); }  // tokens of every rank
  Group& group() const { return table_.group(); }
  // logits f32 [n, vocab] of rows (i32 [n]) of x f32 [tokens, hidden], on every rank of the stage.
  Task forward(Step& step, Tensor logits, Tensor x, Tensor rows);
  // This rank's part of them, f32 [n, its tokens], until the next call.
  Tensor part(Step& step, Tensor x, Tensor rows) const;

 private:
  // These rows normed and prepared.
  const Activations& norm(Step& step, Tensor x, Tensor rows) const;

  const Tensor norm_;
  const float eps_;
  RowBuffer gathered_;  // f32 [n, hidden]
  VocabularyHead table_;
};

}  // namespace cohort
