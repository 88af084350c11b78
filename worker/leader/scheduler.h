// SPDX-License-Identifier: Apache-2.0
// Which sequences compute what in each step of a replica: continuous batching with chunked prefill
// over paged KV blocks (docs/step.md). Pure: no clock, no I/O, no threads; the same calls give the
// same plans. All methods are called by one thread, the batch loop's.
//
// A plan is filled with decodes first, then prefills under way, then sequences that wait. plan()
// may run ahead of commit() by limits.in_flight plans; a sequence is never more than one sampled
// token ahead of what is known here, so a token that turns out to be an end costs at most one
// wasted row. With P pipeline stages (in_flight = P + 1) a plan takes at most a P-th of the
// decodes, and a sequence returns P plans later, when its token is about to reach the first stage.
//
// With several dp groups a plan is filled for each of them from its own rows, slots and blocks. All
// sequences wait in one queue. Where the first one runs is decided when it starts (again): of the
// groups that have room now and are not much fuller than the emptiest, in the one that has the
// fewest rows to compute before it and of it, so that cached prefixes attract, and steps stay even.
//
// When a group's blocks run out, its sequence with the fewest computed positions gives its blocks
// back and computes them again later, from the front of the queue (most are still in the prefix
// cache). The one with the most computed positions is never the victim, so somebody always gets to
// its end.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "worker/leader/group_state.h"
#include "worker/leader/sequence.h"
#include "worker/step_plan.h"

namespace cohort {

struct SchedulerOptions {
  int32_t max_waiting = 4096;  // sequences that may queue here
  int32_t vocabulary = 0;      // tokens of a request are below it; 0: any
};

struct GroupLoad {
  int32_t running = 0;
  BlockCounts blocks;
  friend bool operator==(const GroupLoad&, const GroupLoad&) = default;
};

// Of all dp groups together.
struct SchedulerLoad {
  int32_t running = 0;
  int32_t waiting = 0;
  int64_t queued_prefill_tokens = 0;  // of waiting and running sequences, not yet planned
  BlockCounts blocks;
  uint64_t preemptions = 0;
  uint64_t steps = 0;
  std::vector<GroupLoad> groups;
  friend bool operator==(const SchedulerLoad&, const SchedulerLoad&) = default;
};

class Scheduler {
 public:
  Scheduler(const StepLimits& limits, uint64_t epoch, SchedulerOptions options = {});
  ~Scheduler();

  // Queues a sequence. INVALID_ARGUMENT: it can never run here, and why; RESOURCE_EXHAUSTED: the
  // queue is full; ALREADY_EXISTS: its id is in use. A sequence whose prefix is complete already
  // ends at once, by an event.
  Status admit(SequenceRequest request);

  // Ends a sequence for any reason outside (cancel, deadline): its slot is free at once and its
  // blocks when the steps that use them are done. No event follows. False if it is unknown.
  bool cancel(SequenceId id);

  // The next step, to be submitted; nothing if there is nothing to do or in_flight plans are
  // unanswered. While a sequence runs or waits and no plan is unanswered there always is one: every
  // block is then free, parked or held by a running sequence, admit() refuses what all blocks of a
  // group do not hold, and its most advanced sequence may take everybody's. `row_budget` (at least
  // 1) bounds the tokens of prefill chunks and decodes of each dp group together, below
  // limits.max_rows; decodes are never left out for its sake. `complete` may set what is not
  // decided here, micro_batches and copies, before the checksum is taken.
  std::optional<StepPlan> plan(int32_t row_budget,
                               const std::function<void(StepPlan&)>& complete = nullptr);
  std::optional<StepPlan> plan() { return plan(limits_.max_rows); }

  // Takes the oldest unanswered plan's result. An error means that the ranks do not do what was
  // planned: the replica must end.
  Status commit(const StepResult& result);

  // What happened since the last call, in order.
  std::vector<SequenceEvent> take_events();

  int32_t in_flight() const { return static_cast<int32_t>(in_flight_.size()); }
  bool idle() const { return sequences_.empty() && in_flight_.empty(); }
  // The sampled tokens that the decodes of the dp group with most of them would add to the next
  // step.
  int32_t decodes() const;
  SchedulerLoad load() const;
  // Blocks add up, tables and slots are disjoint. Called when idle and by tests after every call.
  Status check_integrity() const;

 private:
  struct Part {                // of a step in flight
    SequencePointer sequence;  // may have ended meanwhile
    uint64_t incarnation;
    int32_t slot, end;
    bool sample;
  };
  struct Step {
    uint64_t number;
    std::vector<Part> parts;
  };
  // A plan in the making.
  struct GroupDraft {
    int32_t rows_left = 0;
    bool preempted = false;  // somebody, for this plan
    std::vector<StepEntry> entries;
    std::vector<Part> parts;  // of the entries
  };
  struct Draft {
    uint64_t step = 0;
    std::vector<GroupDraft> groups;
  };
  // Where a waiting sequence could start.
  struct Place {
    int32_t dp = 0;
    std::vector<int32_t> cached;  // blocks of its prefix
    double share = 0;             // GroupState::share
    int64_t rows = 0;             // to be computed there until its prefill is done
  };

  // scheduler_plan.cc
  StepPlan seal(Draft draft, const std::function<void(StepPlan&)>& complete);
  void add_decodes(int32_t dp, Draft& draft);
  void add_prefills(int32_t dp, Draft& draft);
  void add_waiting(Draft& draft);
  std::optional<Place> choose_place(const Sequence& sequence, const Draft& draft) const;
  bool may_decode(const Sequence& sequence, uint64_t step) const;
  std::vector<SequencePointer> pick_decodes(const GroupState& group, uint64_t step) const;
  bool make_room(Sequence& sequence, int32_t blocks, Draft& draft);
  void preempt(const SequencePointer& victim);
  void add_entry(Draft& draft, const SequencePointer& sequence, int32_t rows, int32_t blocks,
                 bool is_new);

  // scheduler.cc
  Status check(const SequenceRequest& request) const;
  Status check_tokens(const SequenceRequest& request) const;
  int32_t turn(int32_t decodes) const { return (decodes + stages_ - 1) / stages_; }
  // The group in which it runs.
  int32_t dp_of(const Sequence& sequence) const { return cohort::dp_of(*sequence.slot, limits_); }
  GroupState& group_of(const Sequence& sequence) { return groups_[size_t(dp_of(sequence))]; }
  void retire(Sequence& sequence);  // gives back slot and blocks
  void finish(Sequence& sequence, FinishReason reason, SequenceEvent event);
  Status commit_part(const Part& part, const SlotResult* result);
  void take_token(Sequence& sequence, const SampledToken& sampled);

  const StepLimits limits_;
  const uint64_t epoch_;
  const SchedulerOptions options_;
  const int32_t stages_;  // plans among which the decodes are spread

  std::vector<GroupState> groups_;  // by dp
  std::map<SequenceId, SequencePointer> sequences_;
  std::map<uint64_t, SequencePointer> waiting_;  // by arrival: a preempted one is at the front
  std::vector<int32_t> slots_to_free_;           // known to the ranks until the next plan
  std::deque<Step> in_flight_;
  std::vector<SequenceEvent> events_;
  uint64_t arrivals_ = 0, incarnations_ = 0, steps_ = 0, checksum_ = 0, preemptions_ = 0;
};

}  // namespace cohort
