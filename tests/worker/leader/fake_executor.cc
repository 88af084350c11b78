// SPDX-License-Identifier: Apache-2.0
#include "fake_executor.h"

#include <algorithm>

#include "kernels/kv_layout.h"

namespace cohort {
namespace {

Status broken(const StepPlan& plan, const std::string& what) {
  return internal_error(concat("step ", plan.step, ": ", what));
}

int32_t hash_token(const std::vector<int32_t>& tokens, int32_t end, bool may_end) {
  uint64_t hash = 1469598103934665603u;
  for (int32_t i = 0; i < end; ++i) hash = (hash ^ uint64_t(tokens[size_t(i)])) * 1099511628211u;
  hash ^= hash >> 29;
  if (may_end && hash % 23 == 0) return kFakeEnd;
  return int32_t(10 + hash / 23 % (kFakeVocabulary - 20));
}

}  // namespace

int32_t fake_next_token(const std::vector<int32_t>& tokens, int32_t prompt_tokens,
                        const SamplingParams& sampling) {
  const bool may_end =
      !sampling.end_tokens.empty() && int32_t(tokens.size()) - prompt_tokens >= sampling.min_tokens;
  return hash_token(tokens, int32_t(tokens.size()), may_end);
}

FakeExecutor::FakeExecutor(const StepLimits& limits)
    : limits_(limits),
      cells_(size_t(limits.dp) * size_t(limits.blocks), std::vector<Cell>(size_t(kBlockTokens))) {}

Status FakeExecutor::submit(const StepPlan& plan) {
  COHORT_RETURN_IF_ERROR(check(plan));
  Pending pending{plan, {}};
  for (const StepEntry& entry : plan.entries)
    pending.tables[entry.slot] = slots_.at(entry.slot).table;
  unanswered_.push_back(std::move(pending));
  plans_.push_back(plan);
  rows_ += plan.rows();
  return Status::ok_status();
}

Status FakeExecutor::check(const StepPlan& plan) {
  if (int32_t(unanswered_.size()) >= limits_.in_flight) return broken(plan, "too many in flight");
  if (plan.step != ++step_) return broken(plan, "not consecutive");
  checksum_ = chain_checksum(checksum_, plan);
  if (plan.checksum != checksum_) return broken(plan, "checksum differs");
  if (plan.entries.empty()) return broken(plan, "empty");
  std::map<int32_t, int64_t> rows;
  for (const StepEntry& entry : plan.entries)
    if ((rows[group(entry.slot)] += entry.length) > limits_.max_rows)
      return broken(plan, concat("too many rows of dp group ", group(entry.slot)));
  for (const int32_t slot : plan.frees)
    if (slots_.erase(slot) == 0) return broken(plan, concat("frees empty slot ", slot));
  std::set<int32_t> used;
  for (const StepEntry& entry : plan.entries) {
    if (!used.insert(entry.slot).second) return broken(plan, "two entries for one slot");
    COHORT_RETURN_IF_ERROR(check_entry(plan, entry));
  }
  for (const StepEntry& entry : plan.entries)
    COHORT_RETURN_IF_ERROR(
        check_written(entry, slots_.at(entry.slot)).annotate(concat("step ", plan.step)));
  return Status::ok_status();
}

Status FakeExecutor::check_entry(const StepPlan& plan, const StepEntry& entry) {
  if (entry.slot < 0 || entry.slot >= limits_.dp * limits_.max_slots)
    return broken(plan, "no such slot");
  if (entry.sequence.has_value() == slots_.contains(entry.slot))
    return broken(plan, concat("slot ", entry.slot, " is new and in use, or old and empty"));
  Slot& slot = slots_[entry.slot];
  if (entry.sequence) {
    slot.position = entry.start;
    slot.length = int32_t(entry.sequence->tokens.size());
    if (entry.start % kBlockTokens != 0) return broken(plan, "cached part ends within a block");
  }
  if (entry.start != slot.position || entry.length < 1)
    return broken(plan,
                  concat("slot ", entry.slot, " is at ", slot.position, ", not at ", entry.start));
  slot.position += entry.length;
  if (slot.position > slot.length || slot.position > limits_.max_context)
    return broken(plan, concat("slot ", entry.slot, " goes past its tokens or the context"));
  if (entry.sample != (slot.position == slot.length))
    return broken(plan, concat("slot ", entry.slot, " samples where it must not, or not"));
  slot.length += entry.sample ? 1 : 0;
  slot.table.insert(slot.table.end(), entry.new_blocks.begin(), entry.new_blocks.end());
  if (int32_t(slot.table.size()) != (slot.position + kBlockTokens - 1) / kBlockTokens)
    return broken(plan, concat("slot ", entry.slot, " has ", slot.table.size(), " blocks for ",
                               slot.position, " positions"));
  for (const int32_t block : entry.new_blocks)
    if (block < 0 || block >= limits_.blocks) return broken(plan, "no such block");
  return Status::ok_status();
}

// A block that is written belongs to nobody else, neither now nor in a step in flight.
Status FakeExecutor::check_written(const StepEntry& entry, const Slot& slot) const {
  for (int32_t b = entry.start / kBlockTokens; b < int32_t(slot.table.size()); ++b) {
    const int32_t block = slot.table[size_t(b)];
    for (const auto& [other, state] : slots_) {
      if (group(other) != group(entry.slot)) continue;
      const auto holders = std::ranges::count(state.table, block);
      if (holders != (other == entry.slot ? 1 : 0))
        return internal_error(concat("block ", block, " is written for slot ", entry.slot,
                                     " and held by slot ", other));
    }
    if (!entry.sequence && std::ranges::count(entry.new_blocks, block) == 0) continue;
    for (const Pending& pending : unanswered_)
      for (const auto& [other, table] : pending.tables)
        if (group(other) == group(entry.slot) && std::ranges::count(table, block) > 0)
          return internal_error(concat("block ", block, " is reused while step ", pending.plan.step,
                                       " references it"));
  }
  return Status::ok_status();
}

Result<StepResult> FakeExecutor::next_result() {
  if (unanswered_.empty()) return internal_error("no step is in flight");
  const StepPlan plan = std::move(unanswered_.front().plan);
  unanswered_.pop_front();
  StepResult result;
  result.step = plan.step;
  for (const int32_t slot : plan.frees) device_.erase(slot);
  for (const StepEntry& entry : plan.entries)
    COHORT_RETURN_IF_ERROR(execute(entry, result).annotate(concat("step ", plan.step)));
  return result;
}

Status FakeExecutor::execute(const StepEntry& entry, StepResult& result) {
  Device& device = device_[entry.slot];
  if (entry.sequence) device.sequence = *entry.sequence;
  device.table.insert(device.table.end(), entry.new_blocks.begin(), entry.new_blocks.end());
  std::vector<int32_t>& tokens = device.sequence.tokens;
  const int32_t end = entry.start + entry.length;
  const size_t pool = size_t(group(entry.slot)) * size_t(limits_.blocks);
  for (int32_t p = entry.start; p < end; ++p)
    cells_[pool + size_t(device.table[size_t(p / kBlockTokens)])][size_t(p % kBlockTokens)] = {
        p, tokens[size_t(p)]};
  for (int32_t p = 0; p < end; ++p) {
    const int32_t block = device.table[size_t(p / kBlockTokens)];
    const Cell& cell = cells_[pool + size_t(block)][size_t(p % kBlockTokens)];
    if (cell.position != p || cell.token != tokens[size_t(p)])
      return internal_error(concat("slot ", entry.slot, " reads position ", cell.position,
                                   " in block ", block, " where it wants ", p));
  }
  if (!entry.sample) return Status::ok_status();
  SlotResult slot;
  slot.slot = entry.slot;
  slot.sampled.token =
      fake_next_token(tokens, device.sequence.prompt_tokens, device.sequence.sampling);
  tokens.push_back(slot.sampled.token);
  if (tokens[0] == kFakePoison && int32_t(tokens.size()) >= device.sequence.prompt_tokens + 3)
    slot.error = "layer 1, attention: value is not finite";
  result.slots.push_back(std::move(slot));
  return Status::ok_status();
}

std::string FakeExecutor::state() const {
  std::string text;
  for (const auto& [slot, device] : device_) {
    text += concat("slot ", slot, ":");
    for (const int32_t token : device.sequence.tokens) text += concat(" ", token);
    for (const int32_t block : device.table) text += concat(" b", block);
    text += "\n";
  }
  for (const auto& block : cells_)
    for (const Cell& cell : block) text += concat(cell.position, "=", cell.token, " ");
  return text;
}

}  // namespace cohort
