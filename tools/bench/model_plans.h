// SPDX-License-Identifier: Apache-2.0
// Step plans that measure one thing each: a prompt by itself, or so many sequences that decode. A
// pure value: the same calls give the same plans on every rank.
//
// Sequence s always has the same tokens and the same KV blocks. Once `fill` has computed its first
// positions, it can start again behind them any number of times, as one does whose prefix is
// cached.
#pragma once
#include <cstdint>
#include <vector>

#include "worker/step_plan.h"

namespace cohort::bench {

// Positions that are computed before a decode is measured, and steps that are.
struct DecodeSize {
  int32_t context = 0;
  int32_t steps = 0;
  int32_t positions() const { return context + 1 + steps; }
};
// KV blocks for a prompt alone, or for the sequences that decode.
int32_t blocks_needed(int32_t prompt, int32_t sequences, const DecodeSize& size);

class PlanMaker {
 public:
  // limits: of the ranks; must have the blocks needed.
  PlanMaker(const StepLimits& limits, int64_t vocab, const DecodeSize& size);

  // One sequence of new tokens in chunks of limits.max_rows; the last position is sampled. What
  // fill computed is gone.
  std::vector<StepPlan> prefill(int32_t tokens);
  // The first `context` positions of so many sequences.
  std::vector<StepPlan> fill(int32_t sequences);
  // The first `sequences` start again: position `context` is computed and sampled.
  StepPlan start(int32_t sequences);
  // `steps` steps of those that were started, one token of each.
  std::vector<StepPlan> decode();

 private:
  void free_slots(StepPlan& plan);
  void seal(StepPlan& plan);
  std::vector<int32_t> some_tokens(int32_t count, uint64_t seed) const;
  NewSequence sequence(std::vector<int32_t> tokens) const;
  StepEntry new_entry(int32_t slot, int32_t start, int32_t length, int32_t tokens) const;

  const StepLimits limits_;
  const int64_t vocab_;
  const DecodeSize size_;
  int32_t in_use_ = 0;  // slots 0 .. in_use_ - 1
  uint64_t prompts_ = 0, step_ = 0, checksum_ = 0;
};

}  // namespace cohort::bench
