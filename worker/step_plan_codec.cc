// SPDX-License-Identifier: Apache-2.0
// Step plans and results as flat little-endian bytes (docs/wire.md). Each message starts with a
// magic number that changes with the layout, so ranks of different builds refuse each other's
// plans.
#include <algorithm>
#include <cstring>

#include "base/byte_io.h"
#include "worker/step_plan.h"

namespace cohort {
namespace {

constexpr uint32_t kPlanMagic = 0x32505343;    // "CSP2"
constexpr uint32_t kResultMagic = 0x31525343;  // "CSR1"

void put(ByteWriter& out, const SamplingParams& p) {
  out.put(p.temperature);
  out.put(p.top_k);
  out.put(p.top_p);
  out.put(p.min_p);
  out.put(p.seed);
  out.put(p.frequency_penalty);
  out.put(p.presence_penalty);
  out.put(p.repetition_penalty);
  out.put(static_cast<uint32_t>(p.logit_bias.size()));
  for (const auto& [token, bias] : p.logit_bias) {
    out.put(token);
    out.put(bias);
  }
  out.put(p.min_tokens);
  out.put_all(p.end_tokens);
  out.put(static_cast<uint8_t>(p.logprobs.has_value()));
  out.put(p.logprobs.value_or(0));
}

SamplingParams get_sampling(ByteReader& in) {
  SamplingParams p;
  p.temperature = in.get<float>();
  p.top_k = in.get<int32_t>();
  p.top_p = in.get<float>();
  p.min_p = in.get<float>();
  p.seed = in.get<uint64_t>();
  p.frequency_penalty = in.get<float>();
  p.presence_penalty = in.get<float>();
  p.repetition_penalty = in.get<float>();
  const uint32_t biases = in.get_count(8);
  for (uint32_t i = 0; i < biases; ++i) {
    const auto token = in.get<int32_t>();
    p.logit_bias.emplace_back(token, in.get<float>());
  }
  p.min_tokens = in.get<int32_t>();
  p.end_tokens = in.get_all<int32_t>();
  const bool has_logprobs = in.get_flag();
  const auto logprobs = in.get<int32_t>();
  if (has_logprobs) p.logprobs = logprobs;
  if (!has_logprobs && logprobs != 0) in.fail();
  return p;
}

void put(ByteWriter& out, const StepEntry& entry) {
  out.put(entry.slot);
  out.put(entry.start);
  out.put(entry.length);
  out.put(static_cast<uint8_t>(entry.sample));
  out.put(static_cast<uint8_t>(entry.sequence.has_value()));
  out.put_all(entry.new_blocks);
  if (!entry.sequence) return;
  out.put_all(entry.sequence->tokens);
  out.put(entry.sequence->prompt_tokens);
  put(out, entry.sequence->sampling);
}
constexpr size_t kLeastEntryBytes = 3 * 4 + 2 + 4;

StepEntry get_entry(ByteReader& in) {
  StepEntry entry;
  entry.slot = in.get<int32_t>();
  entry.start = in.get<int32_t>();
  entry.length = in.get<int32_t>();
  entry.sample = in.get_flag();
  const bool is_new = in.get_flag();
  entry.new_blocks = in.get_all<int32_t>();
  if (entry.slot < 0 || entry.start < 0 || entry.length < 1) in.fail();
  if (!is_new) return entry;
  NewSequence sequence;
  sequence.tokens = in.get_all<int32_t>();
  sequence.prompt_tokens = in.get<int32_t>();
  sequence.sampling = get_sampling(in);
  if (sequence.prompt_tokens < 0 || size_t(sequence.prompt_tokens) > sequence.tokens.size())
    in.fail();
  entry.sequence = std::move(sequence);
  return entry;
}

void put(ByteWriter& out, const ExpertCopy& copy) {
  out.put(copy.layer);
  out.put(copy.expert);
  out.put(copy.dp);
  out.put(static_cast<uint8_t>(copy.add));
}
constexpr size_t kCopyBytes = 3 * 4 + 1;

ExpertCopy get_copy(ByteReader& in) {
  ExpertCopy copy;
  copy.layer = in.get<int32_t>();
  copy.expert = in.get<int32_t>();
  copy.dp = in.get<int32_t>();
  copy.add = in.get_flag();
  if (copy.layer < 0 || copy.expert < 0 || copy.dp < 0) in.fail();
  return copy;
}

// All of a plan but its checksum.
std::string encode_body(const StepPlan& plan) {
  ByteWriter out;
  out.put(kPlanMagic);
  out.put(plan.epoch);
  out.put(plan.step);
  out.put(plan.micro_batches);
  out.put(static_cast<uint32_t>(plan.copies.size()));
  for (const ExpertCopy& copy : plan.copies) put(out, copy);
  out.put_all(plan.frees);
  out.put(static_cast<uint32_t>(plan.entries.size()));
  for (const StepEntry& entry : plan.entries) put(out, entry);
  return out.take();
}

void put(ByteWriter& out, const SlotResult& slot) {
  out.put(slot.slot);
  out.put(slot.sampled.token);
  out.put(slot.sampled.logprob);
  out.put(static_cast<uint8_t>(slot.sampled.finite));
  out.put(static_cast<uint32_t>(slot.sampled.top.size()));
  for (const TokenLogprob& top : slot.sampled.top) {
    out.put(top.token);
    out.put(top.logprob);
  }
  out.put_text(slot.error);
}
constexpr size_t kLeastSlotBytes = 4 + 4 + 4 + 1 + 4 + 4;

SlotResult get_slot(ByteReader& in) {
  SlotResult slot;
  slot.slot = in.get<int32_t>();
  slot.sampled.token = in.get<int32_t>();
  slot.sampled.logprob = in.get<float>();
  slot.sampled.finite = in.get_flag();
  const uint32_t tops = in.get_count(8);
  for (uint32_t i = 0; i < tops; ++i) {
    const auto token = in.get<int32_t>();
    slot.sampled.top.push_back({token, in.get<float>()});
  }
  slot.error = in.get_text();
  return slot;
}

// One multiply and one shift a word; any changed bit of a word changes the whole state.
uint64_t mix(uint64_t state, uint64_t word) {
  state = (state ^ word) * 0x9e3779b97f4a7c15u;  // 2^64 / golden ratio, odd
  return state ^ state >> 32;
}

uint64_t checksum(uint64_t state, std::string_view bytes) {
  state = mix(state, bytes.size());
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), 8);
    state = mix(state, word);
  }
  uint64_t rest = 0;
  std::memcpy(&rest, bytes.data(), bytes.size());
  return mix(mix(state, rest), 0x53435046u);
}

}  // namespace

std::string encode(const StepPlan& plan) {
  std::string bytes = encode_body(plan);
  bytes.append(reinterpret_cast<const char*>(&plan.checksum), sizeof plan.checksum);
  return bytes;
}

Result<StepPlan> decode_step_plan(const std::string& bytes) {
  ByteReader in(bytes);
  if (in.get<uint32_t>() != kPlanMagic)
    return data_loss("not a step plan of this build: all ranks must run the same version");
  StepPlan plan;
  plan.epoch = in.get<uint64_t>();
  plan.step = in.get<uint64_t>();
  plan.micro_batches = in.get<int32_t>();
  if (plan.micro_batches < 1 || plan.micro_batches > kMostMicroBatches) in.fail();
  const uint32_t copies = in.get_count(kCopyBytes);
  for (uint32_t i = 0; i < copies && in.ok(); ++i) plan.copies.push_back(get_copy(in));
  plan.frees = in.get_all<int32_t>();
  const uint32_t entries = in.get_count(kLeastEntryBytes);
  for (uint32_t i = 0; i < entries && in.ok(); ++i) plan.entries.push_back(get_entry(in));
  plan.checksum = in.get<uint64_t>();
  if (!in.done()) return data_loss("step plan is cut off or damaged");
  return plan;
}

std::string encode(const StepResult& result) {
  ByteWriter out;
  out.put(kResultMagic);
  out.put(result.step);
  out.put(result.compute_seconds);
  out.put(static_cast<uint32_t>(result.slots.size()));
  for (const SlotResult& slot : result.slots) put(out, slot);
  return out.take();
}

Result<StepResult> decode_step_result(const std::string& bytes) {
  ByteReader in(bytes);
  if (in.get<uint32_t>() != kResultMagic)
    return data_loss("not a step result of this build: all ranks must run the same version");
  StepResult result;
  result.step = in.get<uint64_t>();
  result.compute_seconds = in.get<double>();
  const uint32_t slots = in.get_count(kLeastSlotBytes);
  for (uint32_t i = 0; i < slots && in.ok(); ++i) result.slots.push_back(get_slot(in));
  if (!in.done()) return data_loss("step result is cut off or damaged");
  return result;
}

uint64_t chain_checksum(uint64_t previous, const StepPlan& plan) {
  return checksum(previous, encode_body(plan));
}

StepPlan part_of(const StepPlan& plan, int dp, const StepLimits& limits) {
  StepPlan part{.epoch = plan.epoch,
                .step = plan.step,
                .micro_batches = plan.micro_batches,
                .copies = plan.copies,
                .frees = {},
                .entries = {},
                .checksum = plan.checksum};
  for (const int32_t slot : plan.frees)
    if (dp_of(slot, limits) == dp) part.frees.push_back(slot);
  for (const StepEntry& entry : plan.entries)
    if (dp_of(entry.slot, limits) == dp) part.entries.push_back(entry);
  return part;
}

std::vector<int64_t> rows_of(const StepPlan& plan, const StepLimits& limits) {
  std::vector<int64_t> rows(size_t(limits.dp));
  for (const StepEntry& entry : plan.entries)
    rows.at(size_t(dp_of(entry.slot, limits))) += entry.length;
  return rows;
}

int64_t most_rows(const StepPlan& plan, const StepLimits& limits) {
  return std::ranges::max(rows_of(plan, limits));
}

}  // namespace cohort
