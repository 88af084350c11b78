// SPDX-License-Identifier: Apache-2.0
// Where a stage's activations come from and go to on the CPU. The step runner has one of each and
// does not ask which:
//
//   EmbeddingInput ─► layers ─► SendOutput ··· ReceiveInput ─► layers ─► SampleOutput
//   (first stage)                                                       (last stage)
//
// Activations travel as x [tokens, hidden] f32 with the rows' error codes behind them, one message.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/task.h"
#include "parallel/group.h"
#include "parallel/vocabulary.h"
#include "worker/layers/head.h"
#include "worker/slot_table.h"
#include "worker/step.h"
#include "worker/token_route.h"

namespace cohort {

class StageInput {
 public:
  virtual ~StageInput() = default;
  // Fills x [tokens, hidden] and step.row_errors.
  virtual Task fill(const StepPlan& plan, Step& step, Tensor x) = 0;
};

class StageOutput {
 public:
  virtual ~StageOutput() = default;
  // Passes x on. The rank that samples adds to `slots` what became of each entry.
  virtual Task finish(const StepPlan& plan, Step& step, Tensor x,
                      std::vector<SlotResult>& slots) = 0;
};

class EmbeddingInput : public StageInput {
 public:
  EmbeddingInput(VocabularyEmbedding embedding, int64_t max_rows, const SlotTable& slots,
                 TokenRoute& route)
      : embedding_(std::move(embedding)), ids_(size_t(max_rows)), slots_(slots), route_(route) {}
  Task fill(const StepPlan& plan, Step& step, Tensor x) override;

 private:
  VocabularyEmbedding embedding_;
  std::vector<int32_t> ids_;
  const SlotTable& slots_;
  TokenRoute& route_;
};

// pp: the ranks of this tp index, by stage.
class ReceiveInput : public StageInput {
 public:
  explicit ReceiveInput(Group pp) : pp_(pp) {}
  Task fill(const StepPlan& plan, Step& step, Tensor x) override;

 private:
  Group pp_;
};

class SendOutput : public StageOutput {
 public:
  explicit SendOutput(Group pp) : pp_(pp) {}
  Task finish(const StepPlan& plan, Step& step, Tensor x, std::vector<SlotResult>& slots) override;

 private:
  Group pp_;
};

// All ranks of the stage compute logits; `samples` is true on the one that draws.
class SampleOutput : public StageOutput {
 public:
  // Logits exist for so many rows at a time, which bounds their memory.
  static constexpr int64_t kRows = 32;

  SampleOutput(Head head, bool samples, const SlotTable& slots, TokenRoute& route);
  Task finish(const StepPlan& plan, Step& step, Tensor x, std::vector<SlotResult>& slots) override;

 private:
  void find_rows(const StepPlan& plan);
  void draw(Step& step, Tensor logits, size_t first);
  void report(const StepPlan& plan, const Step& step, std::vector<SlotResult>& slots);

  Head head_;
  const bool samples_;
  const SlotTable& slots_;
  TokenRoute& route_;
  Buffer logits_;                       // f32 [kRows, vocab]
  std::vector<int32_t> rows_;           // of the step's tensors, one per sampling entry
  std::vector<SampleRow> sample_rows_;  // likewise
  std::vector<SampledToken> sampled_;   // likewise
};

}  // namespace cohort
