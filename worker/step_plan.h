// SPDX-License-Identifier: Apache-2.0
// One batched forward as a value: what the leader decides and every rank obeys (docs/step.md).
// Ranks decide nothing, so their collectives cannot diverge. The same plans give the same state:
// they can be recorded and replayed.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/sampling.h"

namespace cohort {

// Everything that ranks must know once about a sequence.
struct NewSequence {
  std::vector<int32_t> tokens;  // prompt, then output so far (after a failover or preemption)
  int32_t prompt_tokens = 0;    // how many of them are prompt
  SamplingParams sampling;
  friend bool operator==(const NewSequence&, const NewSequence&) = default;
};

// One sequence's part of a step: positions [start, start + length) are computed. Tokens at known
// positions are those of NewSequence; a later one is what an earlier step sampled for the slot,
// which the ranks have and the leader may not know yet.
struct StepEntry {
  int32_t slot = 0;  // index in the persistent batch; says the dp group, too
  int32_t start = 0;
  int32_t length = 0;                   // at least 1
  bool sample = false;                  // the last position's logits give the slot's next token
  std::vector<int32_t> new_blocks;      // appended to the slot's block table before the step
  std::optional<NewSequence> sequence;  // present iff the slot is new; its table starts empty
  friend bool operator==(const StepEntry&, const StepEntry&) = default;
};

// A copy of an expert that a rank takes up, or drops, before the step: the load of a hot expert is
// shared by the ranks that have it. It changes no result.
struct ExpertCopy {
  int32_t layer = 0;
  int32_t expert = 0;
  int32_t dp = 0;    // where; the tp index is that of the expert's owner
  bool add = false;  // else drop
  friend bool operator==(const ExpertCopy&, const ExpertCopy&) = default;
};

// Copies that a rank has room for in each layer, beside the experts that are its own.
inline constexpr int kMostExpertCopies = 4;

inline constexpr int32_t kMostMicroBatches = 2;

struct StepPlan {
  uint64_t epoch = 0;  // incarnation of the replica
  uint64_t step = 0;   // consecutive from 1
  // 2: every rank cuts its rows in halves and computes one while the other's collectives are under
  // way. It changes no result.
  int32_t micro_batches = 1;
  std::vector<ExpertCopy> copies = {};
  std::vector<int32_t> frees;  // slots to forget, before the entries
  std::vector<StepEntry> entries;
  // Over all plans so far: checksum(previous, this plan). Ranks verify it.
  uint64_t checksum = 0;
  friend bool operator==(const StepPlan&, const StepPlan&) = default;

  int64_t rows() const {
    int64_t n = 0;
    for (const StepEntry& e : entries) n += e.length;
    return n;
  }
};

// What became of a sampled entry.
struct SlotResult {
  int32_t slot = 0;
  SampledToken sampled;
  // Not empty: the sequence failed ("layer 7, attention: value is not finite"); its neighbours did
  // not.
  std::string error;
  friend bool operator==(const SlotResult&, const SlotResult&) = default;
};

struct StepResult {
  uint64_t step = 0;
  std::vector<SlotResult> slots;  // of the entries that sample, in plan order; and failed ones
  double compute_seconds = 0;
  friend bool operator==(const StepResult&, const StepResult&) = default;
};

// Limits that plans keep and ranks size their memory by.
struct StepLimits {
  // dp groups. Slot s belongs to group s / max_slots, and block ids are of the group's own pools.
  int32_t dp = 1;
  int32_t max_slots = 64;      // sequences in the persistent batch, of each dp group
  int32_t max_rows = 256;      // tokens of one step, of each dp group
  int32_t max_context = 2048;  // positions of one sequence
  int32_t blocks = 0;          // KV blocks of the pool, each kBlockTokens positions
  int32_t in_flight = 2;       // plans sent ahead of results: pipeline stages + 1
};

// The dp group of a slot that exists.
inline int32_t dp_of(int32_t slot, const StepLimits& limits) { return slot / limits.max_slots; }
// Slots of all dp groups together.
inline int32_t all_slots(const StepLimits& limits) { return limits.dp * limits.max_slots; }
// What one dp group has to do: the plan without the entries and frees of the others. Everything
// else, numbers of slots and the checksum of the whole plan included, stays.
StepPlan part_of(const StepPlan& plan, int dp, const StepLimits& limits);
// Rows of each dp group, of a plan whose slots exist. A step takes as long as its largest group.
std::vector<int64_t> rows_of(const StepPlan& plan, const StepLimits& limits);
int64_t most_rows(const StepPlan& plan, const StepLimits& limits);

// Flat little-endian bytes (docs/wire.md). decode is bounded and fuzzed.
std::string encode(const StepPlan& plan);
Result<StepPlan> decode_step_plan(const std::string& bytes);
std::string encode(const StepResult& result);
Result<StepResult> decode_step_result(const std::string& bytes);
// The running checksum after `plan` (its own checksum field does not count).
uint64_t chain_checksum(uint64_t previous, const StepPlan& plan);

// Runs plans on the ranks of a replica. Implemented by the replica's rank group; faked in tests.
// submit and next_result are called by the batch loop's thread; at most limits().in_flight plans
// may be unanswered.
class StepExecutor {
 public:
  virtual ~StepExecutor() = default;
  virtual const StepLimits& limits() const = 0;
  virtual Status submit(const StepPlan& plan) = 0;
  // Results come in step order. A failed replica gives the error that ends it.
  virtual Result<StepResult> next_result() = 0;
  // A result is there already: next_result() would not wait.
  virtual bool has_result() const = 0;
};

}  // namespace cohort
