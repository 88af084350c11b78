// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/model_plans.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "kernels/kv_layout.h"

namespace cohort::bench {
namespace {

int32_t blocks_for(int32_t positions) { return (positions + kBlockTokens - 1) / kBlockTokens; }

std::vector<int32_t> ids(int32_t first, int32_t count) {
  std::vector<int32_t> out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), first);
  return out;
}

StepEntry entry(int32_t slot, int32_t start, int32_t length, bool sample) {
  return {.slot = slot,
          .start = start,
          .length = length,
          .sample = sample,
          .new_blocks = {},
          .sequence = {}};
}

}  // namespace

int32_t blocks_needed(int32_t prompt, int32_t sequences, const DecodeSize& size) {
  return std::max(blocks_for(prompt), sequences * blocks_for(size.positions()));
}

PlanMaker::PlanMaker(const StepLimits& limits, int64_t vocab, const DecodeSize& size)
    : limits_(limits), vocab_(vocab), size_(size) {}

// Any ids will do, but they should not repeat: which experts are chosen follows from them.
std::vector<int32_t> PlanMaker::some_tokens(int32_t count, uint64_t seed) const {
  std::vector<int32_t> tokens;
  uint64_t state = (seed + 1) * 0x9e3779b97f4a7c15u;
  for (int32_t i = 0; i < count; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    tokens.push_back(int32_t((state >> 33) % uint64_t(vocab_)));
  }
  return tokens;
}

NewSequence PlanMaker::sequence(std::vector<int32_t> tokens) const {
  SamplingParams greedy;
  greedy.temperature = 0;
  const int32_t count = int32_t(tokens.size());
  return {.tokens = std::move(tokens), .prompt_tokens = count, .sampling = greedy};
}

void PlanMaker::free_slots(StepPlan& plan) {
  plan.frees = ids(0, in_use_);
  in_use_ = 0;
}

void PlanMaker::seal(StepPlan& plan) {
  plan.epoch = 1;
  plan.step = ++step_;
  plan.checksum = checksum_ = chain_checksum(checksum_, plan);
}

std::vector<StepPlan> PlanMaker::prefill(int32_t tokens) {
  std::vector<StepPlan> plans;
  for (int32_t start = 0; start < tokens; start += limits_.max_rows) {
    const int32_t length = std::min(limits_.max_rows, tokens - start);
    StepPlan& plan = plans.emplace_back();
    if (start == 0) free_slots(plan);
    StepEntry& part = plan.entries.emplace_back(entry(0, start, length, start + length == tokens));
    if (start == 0) {
      // Other tokens than any sequence that decodes has.
      part.sequence = sequence(some_tokens(tokens, (++prompts_) << 32));
      part.new_blocks = ids(0, blocks_for(tokens));
      in_use_ = 1;
    }
    seal(plan);
  }
  return plans;
}

// Sequence `slot`, of which `tokens` are known, with the blocks for all that it will ever compute.
StepEntry PlanMaker::new_entry(int32_t slot, int32_t start, int32_t length, int32_t tokens) const {
  StepEntry part = entry(slot, start, length, false);
  const int32_t count = blocks_for(size_.positions());
  part.sequence = sequence(some_tokens(tokens, uint64_t(slot)));
  part.new_blocks = ids(slot * count, count);
  return part;
}

std::vector<StepPlan> PlanMaker::fill(int32_t sequences) {
  std::vector<StepPlan> plans;
  int32_t left = 0;  // rows of the last plan
  for (int32_t slot = 0; slot < sequences; slot++)
    for (int32_t start = 0; start < size_.context;) {
      if (left == 0) {
        if (!plans.empty()) seal(plans.back());
        if (plans.emplace_back(); plans.size() == 1) free_slots(plans.front());
        left = limits_.max_rows;
      }
      const int32_t length = std::min(left, size_.context - start);
      plans.back().entries.push_back(start == 0 ? new_entry(slot, 0, length, size_.context)
                                                : entry(slot, start, length, false));
      start += length;
      left -= length;
    }
  if (plans.empty()) return plans;
  seal(plans.back());
  in_use_ = sequences;
  return plans;
}

StepPlan PlanMaker::start(int32_t sequences) {
  COHORT_CHECK_LE(sequences, limits_.max_slots);
  StepPlan plan;
  free_slots(plan);
  for (int32_t slot = 0; slot < sequences; slot++) {
    plan.entries.push_back(new_entry(slot, size_.context, 1, size_.context + 1));
    plan.entries.back().sample = true;
  }
  in_use_ = sequences;
  seal(plan);
  return plan;
}

std::vector<StepPlan> PlanMaker::decode() {
  std::vector<StepPlan> plans(static_cast<size_t>(size_.steps));
  for (int32_t i = 0; i < size_.steps; i++) {
    for (int32_t slot = 0; slot < in_use_; slot++)
      plans[size_t(i)].entries.push_back(entry(slot, size_.context + 1 + i, 1, true));
    seal(plans[size_t(i)]);
  }
  return plans;
}

}  // namespace cohort::bench
