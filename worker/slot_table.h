// SPDX-License-Identifier: Apache-2.0
// The persistent batch: what a rank remembers of each sequence between steps. Every rank applies
// every plan to its table, and checks it first: a plan that does not fit ends the rank with an
// error, never with a wrong token. A rank remembers the sequences of its own dp group; of those of
// the others it checks what can be told without a memory of them. Used by the step thread alone.
#pragma once
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "worker/step_plan.h"

namespace cohort {

// One life of a slot: a token that was drawn for an earlier sequence of the slot must not reach
// the next one.
struct SlotRef {
  int32_t slot = 0;
  uint64_t life = 0;
};

struct Slot {
  bool used = false;
  uint64_t life = 0;
  // NewSequence's, then what was sampled. Complete on ranks of the first stage and on the sampler
  // (token_route.h); others keep what NewSequence brought.
  std::vector<int32_t> tokens;
  int32_t prompt_tokens = 0;
  int32_t computed = 0;  // positions in the KV cache after the last plan
  SamplingParams sampling;
  std::vector<int32_t> blocks;
};

class SlotTable {
 public:
  // dp: the group whose sequences it has.
  SlotTable(const StepLimits& limits, int64_t vocab, int dp = 0);

  // Takes the plan of all dp groups. Checks the whole of it (order, running checksum, limits,
  // slots, blocks), then changes the table; on an error nothing has changed.
  Status apply(const StepPlan& plan);

  // A slot of this dp group, by its number in plans.
  const Slot& at(int32_t slot) const {
    COHORT_CHECK(owns(slot));
    return slots_[size_t(slot - first_)];
  }
  SlotRef ref(int32_t slot) const { return {slot, at(slot).life}; }
  // Adds a sampled token, unless the sequence is gone.
  void append(SlotRef ref, int32_t token);

 private:
  bool owns(int32_t slot) const { return slot >= first_ && slot - first_ < limits_.max_slots; }
  Slot& own(int32_t slot) { return slots_[size_t(slot - first_)]; }
  Status check(const StepPlan& plan);
  Status check_order(const StepPlan& plan) const;
  Status check_limits(const StepPlan& plan) const;
  Status check_slots(const StepPlan& plan);
  Status check_entry(const StepEntry& entry) const;
  Status check_progress(const StepEntry& entry) const;
  Status check_new(const StepEntry& entry) const;
  void start(Slot& slot, const NewSequence& sequence);

  const StepLimits limits_;
  const int64_t vocab_;
  const int32_t first_;      // slot of the group
  std::vector<Slot> slots_;  // of the group
  // Per slot of all groups: a mark of the check that saw it freed or named.
  std::vector<uint64_t> seen_;
  uint64_t checks_ = 0;
  uint64_t epoch_ = 0, step_ = 0, checksum_ = 0, lives_ = 0;
};

}  // namespace cohort
