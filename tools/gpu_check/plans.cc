// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/plans.h"

#include <utility>

#include "base/check.h"
#include "kernels/kv_layout.h"

namespace cohort::gpu_check {

StepPlan PlanMaker::empty() {
  StepPlan plan;
  plan.epoch = 1;
  plan.step = ++step_;
  return plan;
}

StepPlan PlanMaker::finish(StepPlan plan) {
  plan.checksum = checksum_ = chain_checksum(checksum_, plan);
  return plan;
}

StepEntry PlanMaker::entry(int slot, int blocks, int tokens) const {
  StepEntry e;
  e.slot = slot;
  e.length = 1;
  e.sample = true;
  COHORT_CHECK_LE(int64_t(slot + 1) * blocks, limits_.blocks);
  for (int b = 0; b < blocks; b++) e.new_blocks.push_back(slot * blocks + b);
  NewSequence sequence;
  for (int i = 0; i < tokens; i++)
    sequence.tokens.push_back(int32_t((int64_t(i) * 7919 + slot * 104729) % vocab_));
  sequence.prompt_tokens = tokens;
  sequence.sampling.temperature = 0;
  e.sequence = std::move(sequence);
  return e;
}

StepPlan PlanMaker::start_decoding(int batch, int context, int more) {
  StepPlan plan = empty();
  for (int slot = 0; slot < running_; slot++) plan.frees.push_back(slot);
  const int blocks = (context + 1 + more + kBlockTokens - 1) / kBlockTokens;
  for (int slot = 0; slot < batch; slot++) {
    plan.entries.push_back(entry(slot, blocks, context + 1));
    plan.entries.back().start = context;
  }
  running_ = batch, position_ = context;
  return finish(std::move(plan));
}

StepPlan PlanMaker::decode_on() {
  StepPlan plan = empty();
  position_++;
  for (int slot = 0; slot < running_; slot++) {
    StepEntry e;
    e.slot = slot, e.start = position_, e.length = 1, e.sample = true;
    plan.entries.push_back(std::move(e));
  }
  return finish(std::move(plan));
}

StepPlan PlanMaker::prefill(int length) {
  StepPlan plan = empty();
  for (int slot = 0; slot < running_; slot++) plan.frees.push_back(slot);
  plan.entries.push_back(entry(0, (length + kBlockTokens - 1) / kBlockTokens, length));
  plan.entries.back().length = length;
  running_ = 1, position_ = length;
  return finish(std::move(plan));
}

}  // namespace cohort::gpu_check
