// SPDX-License-Identifier: Apache-2.0
// Where a stage's activations come from and go to on the CPU. The step runner has one of each for
// every lane (lanes.h) and does not ask which:
//
//   EmbeddingInput ─► layers ─► SendOutput ··· ReceiveInput ─► layers ─► SampleOutput
//   (first stage)                                                       (last stage)
//
// Activations travel as x [tokens, hidden] f32 with the rows' error codes behind them, one message
// for each lane.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/task.h"
#include "parallel/group.h"
#include "parallel/parted_sampler.h"
#include "parallel/vocabulary.h"
#include "worker/layers/head.h"
#include "worker/slot_table.h"
#include "worker/step.h"
#include "worker/step_plan.h"

namespace cohort {

// What a lane has of an entry of the plan.
struct LaneEntry {
  const StepEntry* entry = nullptr;
  int32_t start = 0;   // first position
  int32_t length = 0;  // at least 1
  bool sample = false;
};

class StageInput {
 public:
  virtual ~StageInput() = default;
  // Fills x [tokens, hidden] and step.row_errors.
  virtual Task fill(std::span<const LaneEntry> entries, Step& step, Tensor x) = 0;
};

class StageOutput {
 public:
  virtual ~StageOutput() = default;
  // Passes x on.
  virtual Task finish(std::span<const LaneEntry> entries, Step& step, Tensor x) = 0;
  // After that, on the rank that samples: tokens of the entries that sample, in their order.
  virtual std::span<const SampledToken> sampled() const { return {}; }
};

class EmbeddingInput : public StageInput {
 public:
  EmbeddingInput(VocabularyEmbedding embedding, int64_t max_rows, const SlotTable& slots)
      : embedding_(std::move(embedding)), ids_(size_t(max_rows)), slots_(slots) {}
  Task fill(std::span<const LaneEntry> entries, Step& step, Tensor x) override;

 private:
  VocabularyEmbedding embedding_;
  std::vector<int32_t> ids_;
  const SlotTable& slots_;
};

// pp: the ranks of this tp index and dp group, by stage.
class ReceiveInput : public StageInput {
 public:
  explicit ReceiveInput(Group pp) : pp_(pp) {}
  Task fill(std::span<const LaneEntry> entries, Step& step, Tensor x) override;

 private:
  Group pp_;
};

class SendOutput : public StageOutput {
 public:
  explicit SendOutput(Group pp) : pp_(pp) {}
  Task finish(std::span<const LaneEntry> entries, Step& step, Tensor x) override;

 private:
  Group pp_;
};

// As the two above, with compressed_rows.h: fewer bytes, other results.
class ReceiveCompressed : public StageInput {
 public:
  ReceiveCompressed(Group pp, int64_t max_rows, int64_t hidden);
  Task fill(std::span<const LaneEntry> entries, Step& step, Tensor x) override;

 private:
  Group pp_;
  Buffer message_;  // rows, then error codes
};

class SendCompressed : public StageOutput {
 public:
  SendCompressed(Group pp, int64_t max_rows, int64_t hidden);
  Task finish(std::span<const LaneEntry> entries, Step& step, Tensor x) override;

 private:
  Group pp_;
  Buffer message_;
};

// All ranks of the stage compute logits of some tokens each, and find the next tokens together;
// `samples` is true on the one whose tokens count.
class SampleOutput : public StageOutput {
 public:
  // Logits exist for so many rows at a time, which bounds their memory.
  static constexpr int64_t kRows = 32;

  // tokens_known: every rank of the stage has all tokens in its slots, not only the one that
  // samples.
  SampleOutput(Head head, bool samples, bool tokens_known, const SlotTable& slots);
  Task finish(std::span<const LaneEntry> entries, Step& step, Tensor x) override;
  std::span<const SampledToken> sampled() const override { return sampled_; }

 private:
  void find_rows(std::span<const LaneEntry> entries);

  Head head_;
  const bool samples_, tokens_known_;
  const SlotTable& slots_;
  std::unique_ptr<PartedSampler> sampler_;  // null: this rank has all logits
  std::vector<int32_t> rows_;               // of the step's tensors, one per sampling entry
  std::vector<PartedRow> parted_rows_;      // likewise
  std::vector<SampleRow> sample_rows_;      // likewise
  std::vector<SampledToken> sampled_;       // likewise
};

// What a lane made of its entries.
struct LaneOutcome {
  std::span<const LaneEntry> entries;
  std::span<const int32_t> row_errors;
  std::span<const SampledToken> sampled;
};
// Adds to `slots` what became of the entries that sample, in plan order, and of failed ones. An
// entry that is in two lanes fails if either part did.
void report(std::span<const LaneOutcome> lanes, std::vector<SlotResult>& slots);

}  // namespace cohort
