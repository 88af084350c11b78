// SPDX-License-Identifier: Apache-2.0
// The planning half of the scheduler: who gets rows and blocks in the next step.
#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "kernels/kv_layout.h"
#include "worker/leader/scheduler.h"

namespace cohort {
namespace {

// Prefills go on by so much even where the row budget is used up by decodes.
constexpr int32_t kLeastPrefillRows = kBlockTokens;
// A preemption shows that too little was kept back: 100 undisturbed steps take it down again.
constexpr double kEstimateRise = 0.1;

// Who loses blocks first: the one with the least work to repeat, of equals the youngest.
bool is_less_advanced(const Sequence& a, const Sequence& b) {
  return std::tuple(a.planned, b.arrival) < std::tuple(b.planned, a.arrival);
}

}  // namespace

std::optional<StepPlan> Scheduler::plan(int32_t row_budget) {
  if (in_flight() >= limits_.in_flight) return std::nullopt;
  Draft draft;
  draft.plan.epoch = epoch_;
  draft.plan.step = draft.step.number = steps_ + 1;
  draft.rows_left = limits_.max_rows;
  add_decodes(draft);
  const int32_t decodes = limits_.max_rows - draft.rows_left;
  draft.rows_left = std::min(draft.rows_left, std::max(row_budget - decodes, kLeastPrefillRows));
  add_prefills(draft);
  // A sequence that had to go must not come back in the same step at another's expense.
  if (!draft.preempted) add_waiting(draft);
  if (draft.plan.entries.empty()) return std::nullopt;

  draft.plan.frees = std::exchange(slots_to_free_, {});
  checksum_ = chain_checksum(checksum_, draft.plan);
  draft.plan.checksum = checksum_;
  ++steps_;
  in_flight_.push_back(std::move(draft.step));
  return std::move(draft.plan);
}

bool Scheduler::may_decode(const Sequence& sequence, uint64_t step) const {
  if (sequence.exhausted() || sequence.remaining() != 1) return false;
  if (sequence.unanswered == 0) return true;
  return sequence.unanswered == 1 && sequence.last_step + uint64_t(stages_) <= step;
}

// Those that have waited longest come first, so that plans of a pipeline take turns and nobody is
// left out when there are more decodes than rows.
std::vector<Scheduler::SequencePointer> Scheduler::pick_decodes(const Draft& draft) const {
  std::vector<SequencePointer> picked;
  for (const auto& [arrival, sequence] : running_)
    if (may_decode(*sequence, draft.step.number)) picked.push_back(sequence);
  std::ranges::sort(picked, [](const SequencePointer& a, const SequencePointer& b) {
    return std::tuple(a->last_step, b->planned, a->arrival) <
           std::tuple(b->last_step, a->planned, b->arrival);
  });
  return picked;
}

void Scheduler::add_decodes(Draft& draft) {
  int32_t left = std::min(decodes(), draft.rows_left);
  for (const SequencePointer& sequence : pick_decodes(draft)) {
    if (left == 0) return;
    if (!sequence->slot) continue;  // had to make room for one before it
    const int32_t blocks = blocks_for(sequence->planned + 1) - int32_t(sequence->table.size());
    if (!make_room(*sequence, blocks, draft)) continue;
    add_entry(draft, *sequence, 1, blocks, false);
    --left;
  }
}

void Scheduler::add_prefills(Draft& draft) {
  std::vector<SequencePointer> prefills;
  for (const auto& [arrival, sequence] : running_)
    if (sequence->remaining() > 1) prefills.push_back(sequence);
  for (const SequencePointer& sequence : prefills) {
    if (draft.rows_left == 0) return;
    if (!sequence->slot) continue;
    int32_t rows = std::min(draft.rows_left, sequence->remaining());
    const int32_t held = static_cast<int32_t>(sequence->table.size()) * kBlockTokens;
    const int32_t room = held - sequence->planned + blocks_.available() * kBlockTokens;
    // As far as there are blocks; where there are none, one at another's expense.
    rows = room > 0 ? std::min(rows, room) : std::min(rows, kBlockTokens);
    const int32_t blocks = blocks_for(sequence->planned + rows) - int32_t(sequence->table.size());
    if (make_room(*sequence, blocks, draft)) add_entry(draft, *sequence, rows, blocks, false);
  }
}

void Scheduler::add_waiting(Draft& draft) {
  while (draft.rows_left > 0 && !free_slots_.empty() && !waiting_.empty()) {
    const SequencePointer sequence = waiting_.begin()->second;
    // After a preemption its last tokens may still be under way.
    if (sequence->unanswered > 0 || !start(*sequence)) return;
    waiting_.erase(sequence->arrival);
    running_.emplace(sequence->arrival, sequence);
    const int32_t room = blocks_.available() * kBlockTokens;
    const int32_t rows = std::min({draft.rows_left, sequence->remaining(), room});
    add_entry(draft, *sequence, rows, blocks_for(rows), true);
  }
}

// Takes the cached part of its tokens and a slot, if admission allows it. The last token is always
// computed: its logits are wanted.
bool Scheduler::start(Sequence& sequence) {
  extend_keys(sequence, (sequence.length() - 1) / kBlockTokens);
  const size_t usable = size_t(sequence.length() - 1) / kBlockTokens;
  const auto cached = blocks_.find_prefix(std::span(sequence.keys).first(usable));
  if (!fits(sequence, cached)) return false;
  blocks_.share(cached);
  sequence.table = cached;
  sequence.remembered = static_cast<int32_t>(cached.size());
  sequence.planned = sequence.done = sequence.remembered * kBlockTokens;
  sequence.incarnation = ++incarnations_;
  sequence.slot = free_slots_.back();
  free_slots_.pop_back();
  if (!sequence.cached_tokens)
    sequence.cached_tokens = std::min(sequence.planned, sequence.first_output);
  return true;
}

int32_t Scheduler::expected_blocks(const Sequence& sequence) const {
  const int32_t output_left = std::max(0, sequence.last_output - sequence.length());
  const auto expected = static_cast<int32_t>(std::ceil(output_estimate_ * output_left));
  return blocks_for(sequence.length() + expected);
}

// Whether its tokens and a likely part of its output have room beside what the running sequences
// are likely to need. With nobody running its tokens alone count: it then can take everything.
bool Scheduler::fits(const Sequence& sequence, std::span<const int32_t> cached) const {
  int32_t needed = -static_cast<int32_t>(cached.size());
  for (const auto& [arrival, other] : running_)
    needed += std::max(0, expected_blocks(*other) - int32_t(other->table.size()));
  needed += running_.empty() ? blocks_for(sequence.length()) : expected_blocks(sequence);
  const auto parked = std::ranges::count_if(
      cached, [this](int32_t block) { return blocks_.cache().is_parked(block); });
  return needed <= blocks_.available() - int32_t(parked);
}

// Makes `blocks` blocks available to a sequence, at the expense of less advanced ones if need be.
// False: it has to sit this step out. Blocks that steps in flight are about to give back are waited
// for: preempting on top of them would throw away work for nothing, step after step.
bool Scheduler::make_room(Sequence& sequence, int32_t blocks, Draft& draft) {
  while (blocks_.available() < blocks) {
    if (blocks_.available() + blocks_.arriving() >= blocks) return false;
    const bool one_ends =
        std::ranges::any_of(running_, [](const auto& item) { return item.second->exhausted(); });
    if (one_ends) return false;
    const SequencePointer victim = pick_victim(sequence, draft);
    if (victim == nullptr) return false;
    preempt(*victim);
    draft.preempted = true;
  }
  return true;
}

Scheduler::SequencePointer Scheduler::pick_victim(const Sequence& than, const Draft& draft) const {
  SequencePointer victim;
  for (const auto& [arrival, sequence] : running_) {
    if (sequence->last_step == draft.step.number || !is_less_advanced(*sequence, than)) continue;
    if (victim == nullptr || is_less_advanced(*sequence, *victim)) victim = sequence;
  }
  return victim;
}

void Scheduler::preempt(Sequence& victim) {
  const SequencePointer keep_alive = running_.at(victim.arrival);
  retire(victim);
  victim.planned = victim.done = victim.remembered = 0;
  victim.incarnation = ++incarnations_;
  waiting_.emplace(victim.arrival, keep_alive);
  ++preemptions_;
  output_estimate_ = std::min(1.0, output_estimate_ + kEstimateRise);
}

void Scheduler::add_entry(Draft& draft, Sequence& sequence, int32_t rows, int32_t blocks,
                          bool is_new) {
  const size_t known_blocks = is_new ? 0 : sequence.table.size();
  COHORT_CHECK(blocks_.allocate(blocks, sequence.table));
  StepEntry entry{
      .slot = *sequence.slot,
      .start = sequence.planned,
      .length = rows,
      .sample = rows == sequence.remaining(),
      .new_blocks = {sequence.table.begin() + ptrdiff_t(known_blocks), sequence.table.end()},
      .sequence = std::nullopt};
  if (is_new)
    entry.sequence = NewSequence{sequence.tokens, sequence.first_output, sequence.request.sampling};
  sequence.planned += rows;
  sequence.last_step = draft.step.number;
  sequence.unanswered += entry.sample ? 1 : 0;
  draft.rows_left -= rows;
  draft.step.parts.push_back({sequences_.at(sequence.request.id), sequence.incarnation, entry.slot,
                              sequence.planned, entry.sample});
  draft.plan.entries.push_back(std::move(entry));
}

}  // namespace cohort
