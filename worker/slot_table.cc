// SPDX-License-Identifier: Apache-2.0
#include "worker/slot_table.h"

#include "base/check.h"
#include "kernels/kv_layout.h"

namespace cohort {
namespace {

template <class... Parts>
Status misfit(const StepPlan& plan, const Parts&... parts) {
  return internal_error(concat("the plan of step ", plan.step, " does not fit: ", parts...));
}

}  // namespace

SlotTable::SlotTable(const StepLimits& limits, int64_t vocab)
    : limits_(limits),
      vocab_(vocab),
      slots_(size_t(limits.max_slots)),
      seen_(size_t(limits.max_slots)) {
  const size_t blocks = size_t((limits.max_context + kBlockTokens - 1) / kBlockTokens);
  for (Slot& slot : slots_) {
    slot.tokens.reserve(size_t(limits.max_context) + 1);
    slot.blocks.reserve(blocks);
  }
}

Status SlotTable::apply(const StepPlan& plan) {
  COHORT_RETURN_IF_ERROR(check(plan));
  if (step_ == 0) epoch_ = plan.epoch;
  step_ = plan.step;
  checksum_ = plan.checksum;
  for (int32_t slot : plan.frees) slots_[size_t(slot)].used = false;
  for (const StepEntry& entry : plan.entries) {
    Slot& slot = slots_[size_t(entry.slot)];
    if (entry.sequence) start(slot, *entry.sequence);
    slot.blocks.insert(slot.blocks.end(), entry.new_blocks.begin(), entry.new_blocks.end());
    slot.computed = entry.start + entry.length;
  }
  return {};
}

void SlotTable::append(SlotRef ref, int32_t token) {
  Slot& slot = slots_[size_t(ref.slot)];
  if (slot.used && slot.life == ref.life) slot.tokens.push_back(token);
}

void SlotTable::start(Slot& slot, const NewSequence& sequence) {
  slot.used = true;
  slot.life = ++lives_;
  slot.tokens.assign(sequence.tokens.begin(), sequence.tokens.end());
  slot.prompt_tokens = sequence.prompt_tokens;
  slot.sampling = sequence.sampling;
  slot.blocks.clear();
}

Status SlotTable::check(const StepPlan& plan) {
  if (plan.step != step_ + 1)
    return misfit(plan, "step ", step_ + 1, " was expected; a plan was lost or repeated");
  if (step_ > 0 && plan.epoch != epoch_)
    return misfit(plan, "it is of epoch ", plan.epoch, ", the replica of ", epoch_);
  if (chain_checksum(checksum_, plan) != plan.checksum)
    return misfit(plan, "its running checksum is wrong, so this rank has seen other plans");
  if (plan.rows() > limits_.max_rows)
    return misfit(plan, plan.rows(), " rows are more than the limit of ", limits_.max_rows);
  // Marks of this check alone: a plan that was refused may have left some.
  const uint64_t freed = 2 * ++checks_, named = freed + 1;
  for (int32_t slot : plan.frees) {
    if (slot < 0 || slot >= limits_.max_slots || !at(slot).used || seen_[size_t(slot)] == freed)
      return misfit(plan, "it frees slot ", slot, ", which is not in use");
    seen_[size_t(slot)] = freed;
  }
  for (const StepEntry& entry : plan.entries) {
    if (entry.slot < 0 || entry.slot >= limits_.max_slots)
      return misfit(plan, "there is no slot ", entry.slot);
    uint64_t& seen = seen_[size_t(entry.slot)];
    if (seen == named) return misfit(plan, "it names slot ", entry.slot, " twice");
    const bool in_use = at(entry.slot).used && seen != freed;
    if (in_use == entry.sequence.has_value())
      return misfit(plan, "slot ", entry.slot, in_use ? " is in use already" : " is not in use");
    seen = named;
    if (Status s = check_entry(entry); !s.ok()) return misfit(plan, s.message());
  }
  return {};
}

Status SlotTable::check_entry(const StepEntry& entry) const {
  const Slot& slot = at(entry.slot);
  const int64_t end = int64_t(entry.start) + entry.length;
  if (entry.start < 0 || entry.length < 1 || end > limits_.max_context)
    return internal_error(concat("slot ", entry.slot, ": positions ", entry.start, " to ", end,
                                 " are not within the context of ", limits_.max_context));
  if (!entry.sequence && entry.start > slot.computed)
    return internal_error(concat("slot ", entry.slot, ": it goes on at ", entry.start, ", but ",
                                 slot.computed, " positions are computed"));
  const size_t held = entry.sequence ? 0 : slot.blocks.size();
  if (int64_t(held + entry.new_blocks.size()) * kBlockTokens < end)
    return internal_error(concat("slot ", entry.slot, ": its blocks do not reach position ", end));
  for (int32_t block : entry.new_blocks)
    if (block < 0 || block >= limits_.blocks)
      return internal_error(concat("slot ", entry.slot, ": there is no block ", block));
  return entry.sequence ? check_new(entry) : Status();
}

Status SlotTable::check_new(const StepEntry& entry) const {
  const NewSequence& sequence = *entry.sequence;
  // Biases and end tokens outside the vocabulary are without effect (kernels/cpu/sample.cc).
  for (int32_t token : sequence.tokens)
    if (token < 0 || token >= vocab_)
      return internal_error(
          concat("slot ", entry.slot, ": token ", token, " is not in the vocabulary of ", vocab_));
  const int64_t known = int64_t(sequence.tokens.size());
  if (entry.start + entry.length > known || known > limits_.max_context ||
      sequence.prompt_tokens < 0 || sequence.prompt_tokens > known)
    return internal_error(concat("slot ", entry.slot, ": it comes with ", known, " tokens, ",
                                 sequence.prompt_tokens, " of them prompt"));
  return {};
}

}  // namespace cohort
