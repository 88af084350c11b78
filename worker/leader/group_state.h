// SPDX-License-Identifier: Apache-2.0
// One dp group as the scheduler sees it: who runs there, in which slots and on which KV blocks. A
// running sequence belongs to one group, and what happens in a group concerns no other. Owned by
// the scheduler; pure; one thread.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "worker/leader/block_allocator.h"
#include "worker/leader/sequence.h"
#include "worker/step_plan.h"

namespace cohort {

using SequencePointer = std::shared_ptr<Sequence>;

class GroupState {
 public:
  GroupState(const StepLimits& limits, int32_t dp);

  const std::map<uint64_t, SequencePointer>& running() const { return running_; }  // by arrival
  BlockAllocator& blocks() { return blocks_; }
  const BlockAllocator& blocks() const { return blocks_; }
  bool has_slot() const { return !free_slots_.empty(); }
  // Running sequences that can have one token more.
  int32_t decodes() const;
  // Positions of prefills under way that are not planned yet.
  int64_t prefill_rows() const;
  // How full the group is: the part of its slots that is taken, and of its blocks that running
  // sequences are likely to need, together. 0 to about 2.
  double share() const;

  // The cached leading blocks of a sequence that could start here. Its last token is always
  // computed: its logits are wanted.
  std::vector<int32_t> cached_prefix(const Sequence& sequence) const;
  // Whether its tokens and a likely part of its output have room beside what the running sequences
  // are likely to need. With nobody running its tokens alone count: it then can take everything.
  bool fits(const Sequence& sequence, std::span<const int32_t> cached) const;
  // It runs here from now on. There must be a slot, and it must fit.
  void start(const SequencePointer& sequence, std::span<const int32_t> cached,
             uint64_t incarnation);
  // Takes back slot and blocks of a sequence that runs here. Returns the slot, which the ranks know
  // until a plan frees it.
  int32_t retire(Sequence& sequence);
  // Tells the prefix cache of what finished steps have filled.
  void remember_full_blocks(Sequence& sequence);

  // The least advanced sequence that is less advanced than this one and not part of `step` already;
  // null if there is none.
  SequencePointer pick_victim(const Sequence& than, uint64_t step) const;
  void preempted();                // somebody, for want of blocks
  void completed(uint64_t step);   // the result of this step, and of all before it, is in
  Status check_integrity() const;  // blocks add up, slots are disjoint

 private:
  int32_t expected_blocks(const Sequence& sequence) const;

  const int32_t first_slot_, slots_;
  BlockAllocator blocks_;
  std::map<uint64_t, SequencePointer> running_;
  std::vector<int32_t> free_slots_;  // smallest last
  // The part of its remaining output that a running sequence is expected to use; admission keeps
  // blocks for it. Falls while all goes well, rises with every preemption.
  double output_estimate_;
};

// Makes sure that so many of its leading blocks, whose tokens are known, have their keys.
void extend_keys(Sequence& sequence, int32_t blocks);

}  // namespace cohort
