// SPDX-License-Identifier: Apache-2.0
#include "worker/slot_table.h"

#include "kernels/kv_layout.h"

namespace cohort {
namespace {

template <class... Parts>
Status misfit(const StepPlan& plan, const Parts&... parts) {
  return internal_error(concat("the plan of step ", plan.step, " does not fit: ", parts...));
}

}  // namespace

SlotTable::SlotTable(const StepLimits& limits, int64_t vocab, int dp)
    : limits_(limits),
      vocab_(vocab),
      first_(dp * limits.max_slots),
      slots_(size_t(limits.max_slots)),
      seen_(size_t(all_slots(limits))) {
  COHORT_CHECK_LE(0, dp);
  COHORT_CHECK_LT(dp, limits.dp);
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
  for (int32_t slot : plan.frees)
    if (owns(slot)) own(slot).used = false;
  for (const StepEntry& entry : plan.entries) {
    if (!owns(entry.slot)) continue;
    Slot& slot = own(entry.slot);
    if (entry.sequence) start(slot, *entry.sequence);
    slot.blocks.insert(slot.blocks.end(), entry.new_blocks.begin(), entry.new_blocks.end());
    slot.computed = entry.start + entry.length;
  }
  return {};
}

void SlotTable::append(SlotRef ref, int32_t token) {
  Slot& slot = own(ref.slot);
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
  COHORT_RETURN_IF_ERROR(check_order(plan));
  COHORT_RETURN_IF_ERROR(check_limits(plan));
  return check_slots(plan);
}

Status SlotTable::check_order(const StepPlan& plan) const {
  if (plan.step != step_ + 1)
    return misfit(plan, "step ", step_ + 1, " was expected; a plan was lost or repeated");
  if (step_ > 0 && plan.epoch != epoch_)
    return misfit(plan, "it is of epoch ", plan.epoch, ", the replica of ", epoch_);
  if (chain_checksum(checksum_, plan) != plan.checksum)
    return misfit(plan, "its running checksum is wrong, so this rank has seen other plans");
  return {};
}

Status SlotTable::check_limits(const StepPlan& plan) const {
  if (plan.micro_batches < 1 || plan.micro_batches > kMostMicroBatches)
    return misfit(plan, "it is to be cut in ", plan.micro_batches, ", but 1 or ", kMostMicroBatches,
                  " are possible");
  for (const ExpertCopy& copy : plan.copies)
    if (copy.layer < 0 || copy.expert < 0 || copy.dp < 0 || copy.dp >= limits_.dp)
      return misfit(plan, "it copies expert ", copy.expert, " of layer ", copy.layer,
                    " to dp group ", copy.dp, " of ", limits_.dp);
  for (const StepEntry& entry : plan.entries)
    if (entry.slot < 0 || entry.slot >= all_slots(limits_))
      return misfit(plan, "there is no slot ", entry.slot);
  const std::vector<int64_t> rows = rows_of(plan, limits_);
  for (size_t dp = 0; dp < rows.size(); ++dp)
    if (rows[dp] > limits_.max_rows)
      return misfit(plan, rows[dp], " rows of dp group ", dp, " are more than the limit of ",
                    limits_.max_rows);
  return {};
}

Status SlotTable::check_slots(const StepPlan& plan) {
  // Marks of this check alone: a plan that was refused may have left some.
  const uint64_t freed = 2 * ++checks_, named = freed + 1;
  for (int32_t slot : plan.frees) {
    const bool exists = slot >= 0 && slot < all_slots(limits_);
    if (!exists || seen_[size_t(slot)] == freed || (owns(slot) && !at(slot).used))
      return misfit(plan, "it frees slot ", slot, ", which is not in use");
    seen_[size_t(slot)] = freed;
  }
  for (const StepEntry& entry : plan.entries) {
    uint64_t& seen = seen_[size_t(entry.slot)];
    if (seen == named) return misfit(plan, "it names slot ", entry.slot, " twice");
    const bool is_new = entry.sequence.has_value();
    const bool in_use = seen != freed && (owns(entry.slot) ? at(entry.slot).used : !is_new);
    if (in_use == is_new)
      return misfit(plan, "slot ", entry.slot, in_use ? " is in use already" : " is not in use");
    seen = named;
    if (Status s = check_entry(entry); !s.ok()) return misfit(plan, s.message());
  }
  return {};
}

Status SlotTable::check_entry(const StepEntry& entry) const {
  const int64_t end = int64_t(entry.start) + entry.length;
  if (entry.start < 0 || entry.length < 1 || end > limits_.max_context)
    return internal_error(concat("slot ", entry.slot, ": positions ", entry.start, " to ", end,
                                 " are not within the context of ", limits_.max_context));
  for (int32_t block : entry.new_blocks)
    if (block < 0 || block >= limits_.blocks)
      return internal_error(concat("slot ", entry.slot, ": there is no block ", block));
  if (owns(entry.slot)) {
    COHORT_RETURN_IF_ERROR(check_progress(entry));
  }
  return entry.sequence ? check_new(entry) : Status();
}

// Against what this rank remembers of the sequence.
Status SlotTable::check_progress(const StepEntry& entry) const {
  const Slot& slot = at(entry.slot);
  const int64_t end = int64_t(entry.start) + entry.length;
  if (!entry.sequence && entry.start > slot.computed)
    return internal_error(concat("slot ", entry.slot, ": it goes on at ", entry.start, ", but ",
                                 slot.computed, " positions are computed"));
  const size_t held = entry.sequence ? 0 : slot.blocks.size();
  if (int64_t(held + entry.new_blocks.size()) * kBlockTokens < end)
    return internal_error(concat("slot ", entry.slot, ": its blocks do not reach position ", end));
  return {};
}

Status SlotTable::check_new(const StepEntry& entry) const {
  const NewSequence& sequence = *entry.sequence;
  // Biases and end tokens outside the vocabulary are without effect (kernels/cpu/sample.cc).
  // Tokens of another group are left to its ranks: a prompt may be long.
  if (owns(entry.slot)) {
    for (int32_t token : sequence.tokens)
      if (token < 0 || token >= vocab_)
        return internal_error(concat("slot ", entry.slot, ": token ", token,
                                     " is not in the vocabulary of ", vocab_));
  }
  const int64_t known = int64_t(sequence.tokens.size());
  if (entry.start + entry.length > known || known > limits_.max_context ||
      sequence.prompt_tokens < 0 || sequence.prompt_tokens > known)
    return internal_error(concat("slot ", entry.slot, ": it comes with ", known, " tokens, ",
                                 sequence.prompt_tokens, " of them prompt"));
  return {};
}

}  // namespace cohort
