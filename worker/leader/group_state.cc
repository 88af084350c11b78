// SPDX-License-Identifier: Apache-2.0
#include "worker/leader/group_state.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <tuple>

#include "base/check.h"
#include "kernels/kv_layout.h"

namespace cohort {
namespace {

// At first, 7 tenths of the output that was allowed is expected to come.
constexpr double kFirstOutputEstimate = 0.7, kLeastOutputEstimate = 0.1;
constexpr double kEstimateDecay = 0.001;  // per finished step: from first to least in 600 steps
// A preemption shows that too little was kept back: 100 undisturbed steps take it down again.
constexpr double kEstimateRise = 0.1;

// Who loses blocks first: the one with the least work to repeat, of equals the youngest.
bool is_less_advanced(const Sequence& a, const Sequence& b) {
  return std::tuple(a.planned, b.arrival) < std::tuple(b.planned, a.arrival);
}

// Blocks of its tokens but the last.
int32_t usable_blocks(const Sequence& sequence) { return (sequence.length() - 1) / kBlockTokens; }

}  // namespace

int32_t blocks_for(int32_t positions) { return (positions + kBlockTokens - 1) / kBlockTokens; }

void extend_keys(Sequence& sequence, int32_t blocks) {
  const std::span<const int32_t> tokens(sequence.tokens);
  while (int32_t(sequence.keys.size()) < blocks) {
    const size_t b = sequence.keys.size();
    const BlockKey parent = b == 0 ? BlockKey{} : sequence.keys.back();
    sequence.keys.push_back(
        block_key(parent, tokens.subspan(b * kBlockTokens, kBlockTokens), sequence.request.salt));
  }
}

GroupState::GroupState(const StepLimits& limits, int32_t dp)
    : first_slot_(dp * limits.max_slots),
      slots_(limits.max_slots),
      blocks_(limits.blocks),
      output_estimate_(kFirstOutputEstimate) {
  for (int32_t slot = slots_; slot-- > 0;) free_slots_.push_back(first_slot_ + slot);
}

int32_t GroupState::decodes() const {
  int32_t count = 0;
  for (const auto& [arrival, sequence] : running_)
    if (!sequence->exhausted() && sequence->remaining() == 1) ++count;
  return count;
}

int64_t GroupState::prefill_rows() const {
  int64_t rows = 0;
  for (const auto& [arrival, sequence] : running_)
    if (sequence->remaining() > 1) rows += sequence->remaining();
  return rows;
}

double GroupState::share() const {
  int64_t needed = 0;
  for (const auto& [arrival, sequence] : running_)
    needed += std::max(expected_blocks(*sequence), int32_t(sequence->table.size()));
  return double(running_.size()) / slots_ + double(needed) / std::max(1, blocks_.counts().total);
}

std::vector<int32_t> GroupState::cached_prefix(const Sequence& sequence) const {
  return blocks_.find_prefix(std::span(sequence.keys).first(size_t(usable_blocks(sequence))));
}

int32_t GroupState::expected_blocks(const Sequence& sequence) const {
  const int32_t output_left = std::max(0, sequence.last_output - sequence.length());
  const auto expected = static_cast<int32_t>(std::ceil(output_estimate_ * output_left));
  return blocks_for(sequence.length() + expected);
}

bool GroupState::fits(const Sequence& sequence, std::span<const int32_t> cached) const {
  int32_t needed = -static_cast<int32_t>(cached.size());
  for (const auto& [arrival, other] : running_)
    needed += std::max(0, expected_blocks(*other) - int32_t(other->table.size()));
  needed += running_.empty() ? blocks_for(sequence.length()) : expected_blocks(sequence);
  const auto parked = std::ranges::count_if(
      cached, [this](int32_t block) { return blocks_.cache().is_parked(block); });
  return needed <= blocks_.available() - int32_t(parked);
}

void GroupState::start(const SequencePointer& sequence, std::span<const int32_t> cached,
                       uint64_t incarnation) {
  blocks_.share(cached);
  sequence->table.assign(cached.begin(), cached.end());
  sequence->remembered = static_cast<int32_t>(cached.size());
  sequence->planned = sequence->done = sequence->remembered * kBlockTokens;
  sequence->incarnation = incarnation;
  sequence->slot = free_slots_.back();
  free_slots_.pop_back();
  if (!sequence->cached_tokens)
    sequence->cached_tokens = std::min(sequence->planned, sequence->first_output);
  running_.emplace(sequence->arrival, sequence);
}

int32_t GroupState::retire(Sequence& sequence) {
  blocks_.release(sequence.table, sequence.last_step);
  sequence.table.clear();
  const int32_t slot = *sequence.slot;
  free_slots_.push_back(slot);
  std::ranges::sort(free_slots_, std::greater{});
  sequence.slot.reset();
  running_.erase(sequence.arrival);
  return slot;
}

void GroupState::remember_full_blocks(Sequence& sequence) {
  const int32_t full = sequence.done / kBlockTokens, known = sequence.remembered;
  extend_keys(sequence, full);
  for (int32_t b = known; b < full; ++b)
    blocks_.remember(sequence.keys[size_t(b)], sequence.table[size_t(b)]);
  sequence.remembered = std::max(known, full);
}

SequencePointer GroupState::pick_victim(const Sequence& than, uint64_t step) const {
  SequencePointer victim;
  for (const auto& [arrival, sequence] : running_) {
    if (sequence->last_step == step || !is_less_advanced(*sequence, than)) continue;
    if (victim == nullptr || is_less_advanced(*sequence, *victim)) victim = sequence;
  }
  return victim;
}

void GroupState::preempted() { output_estimate_ = std::min(1.0, output_estimate_ + kEstimateRise); }

void GroupState::completed(uint64_t step) {
  blocks_.completed(step);
  output_estimate_ = std::max(kLeastOutputEstimate, output_estimate_ - kEstimateDecay);
}

Status GroupState::check_integrity() const {
  std::vector<const std::vector<int32_t>*> tables;
  std::vector<bool> taken(size_t(slots_), false);
  for (const int32_t slot : free_slots_) taken.at(size_t(slot - first_slot_)) = true;
  for (const auto& [arrival, sequence] : running_) {
    tables.push_back(&sequence->table);
    const int32_t slot = sequence->slot.value_or(-1);
    const bool exists = slot >= first_slot_ && slot < first_slot_ + slots_;
    if (!exists || taken[size_t(slot - first_slot_)])
      return internal_error(concat("slot ", slot, " is held twice, free, or of another group"));
    taken[size_t(slot - first_slot_)] = true;
    if (int32_t(sequence->table.size()) != blocks_for(sequence->planned))
      return internal_error(concat("slot ", slot, " holds ", sequence->table.size(), " blocks for ",
                                   sequence->planned, " positions"));
  }
  if (running_.size() + free_slots_.size() != taken.size())
    return internal_error(concat(running_.size(), " sequences run in slots from ", first_slot_,
                                 " on and ", free_slots_.size(), " are free, of ", slots_));
  return blocks_.check_integrity(tables);
}

}  // namespace cohort
