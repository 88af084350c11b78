// SPDX-License-Identifier: Apache-2.0
// The planning half of the scheduler: who gets rows and blocks in the next step.
#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "kernels/kv_layout.h"
#include "worker/leader/scheduler.h"

namespace cohort {
namespace {

// Prefills go on by so much even where the row budget is used up by decodes.
constexpr int32_t kLeastPrefillRows = kBlockTokens;
// Groups whose GroupState::share differs by at most this much are equally loaded: a cached prefix,
// or a shorter prefill before it, is worth a quarter of a group's slots or blocks, and no more, as
// otherwise all that begin alike would crowd one group.
constexpr double kCloseShare = 0.25;

}  // namespace

std::optional<StepPlan> Scheduler::plan(int32_t row_budget,
                                        const std::function<void(StepPlan&)>& complete) {
  if (in_flight() >= limits_.in_flight) return std::nullopt;
  Draft draft{.step = steps_ + 1, .groups = std::vector<GroupDraft>(groups_.size())};
  for (int32_t dp = 0; dp < limits_.dp; ++dp) {
    int32_t& rows_left = draft.groups[size_t(dp)].rows_left;
    rows_left = limits_.max_rows;
    add_decodes(dp, draft);
    const int32_t decodes = limits_.max_rows - rows_left;
    rows_left = std::min(rows_left, std::max(row_budget - decodes, kLeastPrefillRows));
    add_prefills(dp, draft);
  }
  add_waiting(draft);
  if (std::ranges::all_of(draft.groups, [](const GroupDraft& g) { return g.entries.empty(); }))
    return std::nullopt;
  return seal(std::move(draft), complete);
}

// Entries of one dp group stand together, in the order of the groups.
StepPlan Scheduler::seal(Draft draft, const std::function<void(StepPlan&)>& complete) {
  StepPlan plan;
  plan.epoch = epoch_;
  plan.step = steps_ = draft.step;
  Step step{.number = draft.step, .parts = {}};
  for (GroupDraft& group : draft.groups) {
    std::ranges::move(group.entries, std::back_inserter(plan.entries));
    std::ranges::move(group.parts, std::back_inserter(step.parts));
  }
  plan.frees = std::exchange(slots_to_free_, {});
  if (complete) complete(plan);
  plan.checksum = checksum_ = chain_checksum(checksum_, plan);
  in_flight_.push_back(std::move(step));
  return plan;
}

bool Scheduler::may_decode(const Sequence& sequence, uint64_t step) const {
  if (sequence.exhausted() || sequence.remaining() != 1) return false;
  if (sequence.unanswered == 0) return true;
  return sequence.unanswered == 1 && sequence.last_step + uint64_t(stages_) <= step;
}

// Those that have waited longest come first, so that plans of a pipeline take turns and nobody is
// left out when there are more decodes than rows.
std::vector<SequencePointer> Scheduler::pick_decodes(const GroupState& group, uint64_t step) const {
  std::vector<SequencePointer> picked;
  for (const auto& [arrival, sequence] : group.running())
    if (may_decode(*sequence, step)) picked.push_back(sequence);
  std::ranges::sort(picked, [](const SequencePointer& a, const SequencePointer& b) {
    return std::tuple(a->last_step, b->planned, a->arrival) <
           std::tuple(b->last_step, a->planned, b->arrival);
  });
  return picked;
}

void Scheduler::add_decodes(int32_t dp, Draft& draft) {
  const GroupState& group = groups_[size_t(dp)];
  int32_t left = std::min(turn(group.decodes()), draft.groups[size_t(dp)].rows_left);
  for (const SequencePointer& sequence : pick_decodes(group, draft.step)) {
    if (left == 0) return;
    if (!sequence->slot) continue;  // had to make room for one before it
    const int32_t blocks = blocks_for(sequence->planned + 1) - int32_t(sequence->table.size());
    if (!make_room(*sequence, blocks, draft)) continue;
    add_entry(draft, sequence, 1, blocks, false);
    --left;
  }
}

void Scheduler::add_prefills(int32_t dp, Draft& draft) {
  const GroupState& group = groups_[size_t(dp)];
  const int32_t& rows_left = draft.groups[size_t(dp)].rows_left;
  std::vector<SequencePointer> prefills;
  for (const auto& [arrival, sequence] : group.running())
    if (sequence->remaining() > 1) prefills.push_back(sequence);
  for (const SequencePointer& sequence : prefills) {
    if (rows_left == 0) return;
    if (!sequence->slot) continue;
    int32_t rows = std::min(rows_left, sequence->remaining());
    const int32_t held = static_cast<int32_t>(sequence->table.size()) * kBlockTokens;
    const int32_t room = held - sequence->planned + group.blocks().available() * kBlockTokens;
    // As far as there are blocks; where there are none, one at another's expense.
    rows = room > 0 ? std::min(rows, room) : std::min(rows, kBlockTokens);
    const int32_t blocks = blocks_for(sequence->planned + rows) - int32_t(sequence->table.size());
    if (make_room(*sequence, blocks, draft)) add_entry(draft, sequence, rows, blocks, false);
  }
}

void Scheduler::add_waiting(Draft& draft) {
  while (!waiting_.empty()) {
    const SequencePointer sequence = waiting_.begin()->second;
    // After a preemption its last tokens may still be under way.
    if (sequence->unanswered > 0) return;
    extend_keys(*sequence, (sequence->length() - 1) / kBlockTokens);
    const std::optional<Place> place = choose_place(*sequence, draft);
    if (!place) return;
    GroupState& group = groups_[size_t(place->dp)];
    group.start(sequence, place->cached, ++incarnations_);
    waiting_.erase(sequence->arrival);
    const int32_t room = group.blocks().available() * kBlockTokens;
    const int32_t rows =
        std::min({draft.groups[size_t(place->dp)].rows_left, sequence->remaining(), room});
    add_entry(draft, sequence, rows, blocks_for(rows), true);
  }
}

std::optional<Scheduler::Place> Scheduler::choose_place(const Sequence& sequence,
                                                        const Draft& draft) const {
  std::vector<Place> places;
  for (int32_t dp = 0; dp < limits_.dp; ++dp) {
    const GroupState& group = groups_[size_t(dp)];
    const GroupDraft& part = draft.groups[size_t(dp)];
    // A sequence that had to go must not come back in the same step at another's expense.
    if (part.rows_left == 0 || part.preempted || !group.has_slot()) continue;
    Place place{.dp = dp, .cached = group.cached_prefix(sequence)};
    if (!group.fits(sequence, place.cached)) continue;
    place.share = group.share();
    place.rows =
        group.prefill_rows() + sequence.length() - int64_t(place.cached.size()) * kBlockTokens;
    for (const StepEntry& entry : part.entries) place.rows += entry.length;
    places.push_back(std::move(place));
  }
  if (places.empty()) return std::nullopt;
  const double least = std::ranges::min_element(places, {}, &Place::share)->share;
  std::erase_if(places, [&](const Place& place) { return place.share > least + kCloseShare; });
  return *std::ranges::min_element(
      places, {}, [](const Place& p) { return std::tuple(p.rows, p.share, p.dp); });
}

// Makes `blocks` blocks available to a sequence, at the expense of less advanced ones of its group
// if need be. False: it has to sit this step out. Blocks that steps in flight are about to give
// back are waited for: preempting on top of them would throw away work for nothing, step after
// step.
bool Scheduler::make_room(Sequence& sequence, int32_t blocks, Draft& draft) {
  GroupState& group = group_of(sequence);
  while (group.blocks().available() < blocks) {
    if (group.blocks().available() + group.blocks().arriving() >= blocks) return false;
    const bool one_ends = std::ranges::any_of(
        group.running(), [](const auto& item) { return item.second->exhausted(); });
    if (one_ends) return false;
    const SequencePointer victim = group.pick_victim(sequence, draft.step);
    if (victim == nullptr) return false;
    draft.groups[size_t(dp_of(*victim))].preempted = true;
    preempt(victim);
  }
  return true;
}

void Scheduler::preempt(const SequencePointer& victim) {
  group_of(*victim).preempted();
  retire(*victim);
  victim->planned = victim->done = victim->remembered = 0;
  victim->incarnation = ++incarnations_;
  waiting_.emplace(victim->arrival, victim);
  ++preemptions_;
}

void Scheduler::add_entry(Draft& draft, const SequencePointer& sequence, int32_t rows,
                          int32_t blocks, bool is_new) {
  Sequence& s = *sequence;
  GroupDraft& group = draft.groups[size_t(dp_of(s))];
  const size_t known_blocks = is_new ? 0 : s.table.size();
  COHORT_CHECK(group_of(s).blocks().allocate(blocks, s.table));
  StepEntry entry{.slot = *s.slot,
                  .start = s.planned,
                  .length = rows,
                  .sample = rows == s.remaining(),
                  .new_blocks = {s.table.begin() + ptrdiff_t(known_blocks), s.table.end()},
                  .sequence = std::nullopt};
  if (is_new) entry.sequence = NewSequence{s.tokens, s.first_output, s.request.sampling};
  s.planned += rows;
  s.last_step = draft.step;
  s.unanswered += entry.sample ? 1 : 0;
  group.rows_left -= rows;
  group.parts.push_back({sequence, s.incarnation, entry.slot, s.planned, entry.sample});
  group.entries.push_back(std::move(entry));
}

}  // namespace cohort
