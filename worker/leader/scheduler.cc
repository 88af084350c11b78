// SPDX-License-Identifier: Apache-2.0
#include "worker/leader/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/kv_layout.h"

namespace cohort {
namespace {

bool is_end(const SamplingParams& sampling, int32_t token) {
  return std::ranges::find(sampling.end_tokens, token) != sampling.end_tokens.end();
}

}  // namespace

Scheduler::Scheduler(const StepLimits& limits, uint64_t epoch, SchedulerOptions options)
    : limits_(limits),
      epoch_(epoch),
      options_(options),
      stages_(std::max(1, limits.in_flight - 1)) {
  COHORT_CHECK_GT(limits.dp, 0);
  COHORT_CHECK_GT(limits.max_slots, 0);
  COHORT_CHECK_GT(limits.max_rows, 0);
  COHORT_CHECK_GT(limits.in_flight, 0);
  for (int32_t dp = 0; dp < limits.dp; ++dp) groups_.emplace_back(limits, dp);
}

Scheduler::~Scheduler() = default;

Status Scheduler::check(const SequenceRequest& request) const {
  if (request.prompt.empty()) return invalid_argument("the prompt is empty");
  COHORT_RETURN_IF_ERROR(check_tokens(request));
  if (request.max_tokens < 1)
    return invalid_argument(concat("max_tokens is ", request.max_tokens, ", must be at least 1"));
  const int64_t prompt = int64_t(request.prompt.size());
  if (prompt >= limits_.max_context)
    return invalid_argument(concat("the prompt has ", prompt, " tokens, but the context is ",
                                   limits_.max_context, ": shorten the prompt"));
  if (int64_t(request.output_prefix.size()) > request.max_tokens)
    return invalid_argument(concat("the output prefix has ", request.output_prefix.size(),
                                   " tokens, more than max_tokens ", request.max_tokens));
  // The last token is sampled, not computed: it needs no position.
  const int64_t positions =
      std::min(prompt + request.max_tokens, int64_t(limits_.max_context) + 1) - 1;
  const int32_t blocks = blocks_for(int32_t(positions));
  if (blocks > limits_.blocks)
    return invalid_argument(concat("prompt and max_tokens need ", blocks, " KV blocks of ",
                                   kBlockTokens, " tokens, but this replica has ", limits_.blocks,
                                   ": lower max_tokens or give the worker more --kv-memory"));
  return Status::ok_status();
}

Status Scheduler::check_tokens(const SequenceRequest& request) const {
  if (options_.vocabulary == 0) return Status::ok_status();
  const auto outside = [this](int32_t token) { return token < 0 || token >= options_.vocabulary; };
  for (const auto* tokens : {&request.prompt, &request.output_prefix})
    for (const int32_t token : *tokens)
      if (outside(token))
        return invalid_argument(concat("token ", token, " is not in the vocabulary of ",
                                       options_.vocabulary, " tokens"));
  for (const auto& [token, bias] : request.sampling.logit_bias)
    if (outside(token))
      return invalid_argument(concat("logit_bias names token ", token,
                                     ", which is not in the vocabulary of ", options_.vocabulary,
                                     " tokens"));
  return Status::ok_status();
}

Status Scheduler::admit(SequenceRequest request) {
  COHORT_RETURN_IF_ERROR(check(request));
  if (sequences_.contains(request.id))
    return {Code::kAlreadyExists, concat("request ", request.id.request, " attempt ",
                                         request.id.attempt, " is being worked on already")};
  if (int32_t(waiting_.size()) >= options_.max_waiting)
    return resource_exhausted(concat("the replica's queue of ", options_.max_waiting,
                                     " sequences is full: try again later"));
  auto sequence = std::make_shared<Sequence>();
  sequence->arrival = ++arrivals_;
  sequence->tokens = request.prompt;
  sequence->tokens.insert(sequence->tokens.end(), request.output_prefix.begin(),
                          request.output_prefix.end());
  sequence->first_output = static_cast<int32_t>(request.prompt.size());
  sequence->last_output = static_cast<int32_t>(std::min<int64_t>(
      int64_t(sequence->first_output) + request.max_tokens, int64_t(limits_.max_context) + 1));
  sequence->request = std::move(request);
  const auto& prefix = sequence->request.output_prefix;
  SequenceEvent event{.id = sequence->request.id, .index = sequence->output_size()};
  if (!prefix.empty() && is_end(sequence->request.sampling, prefix.back()) &&
      sequence->output_size() > sequence->request.sampling.min_tokens) {
    event.finish = FinishReason::stop;
  } else if (sequence->exhausted()) {
    event.finish = FinishReason::length;
  }
  if (event.finish) {
    events_.push_back(std::move(event));
    return Status::ok_status();
  }
  sequences_.emplace(sequence->request.id, sequence);
  waiting_.emplace(sequence->arrival, std::move(sequence));
  return Status::ok_status();
}

bool Scheduler::cancel(SequenceId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return false;
  const SequencePointer sequence = found->second;
  sequences_.erase(found);
  retire(*sequence);
  waiting_.erase(sequence->arrival);
  return true;
}

void Scheduler::retire(Sequence& sequence) {
  if (sequence.slot) slots_to_free_.push_back(group_of(sequence).retire(sequence));
}

void Scheduler::finish(Sequence& sequence, FinishReason reason, SequenceEvent event) {
  event.finish = reason;
  events_.push_back(std::move(event));
  const SequencePointer keep_alive = sequences_.at(sequence.request.id);
  sequences_.erase(sequence.request.id);
  retire(sequence);
  waiting_.erase(sequence.arrival);
}

Status Scheduler::commit(const StepResult& result) {
  if (in_flight_.empty() || in_flight_.front().number != result.step)
    return internal_error(concat("result of step ", result.step, " came, but step ",
                                 in_flight_.empty() ? 0 : in_flight_.front().number,
                                 " is the oldest unanswered one (0: none)"));
  const Step step = std::move(in_flight_.front());
  in_flight_.pop_front();
  std::map<int32_t, const SlotResult*> by_slot;
  for (const SlotResult& slot : result.slots) by_slot[slot.slot] = &slot;
  for (const Part& part : step.parts) {
    const auto found = by_slot.find(part.slot);
    COHORT_RETURN_IF_ERROR(commit_part(part, found == by_slot.end() ? nullptr : found->second)
                               .annotate(concat("step ", step.number)));
  }
  for (GroupState& group : groups_) group.completed(step.number);
  return Status::ok_status();
}

Status Scheduler::commit_part(const Part& part, const SlotResult* result) {
  if (part.sample && result == nullptr)
    return internal_error(concat("no result for slot ", part.slot, ", which was sampled"));
  Sequence& sequence = *part.sequence;
  const SequenceId id = sequence.request.id;
  const auto found = sequences_.find(id);
  if (found == sequences_.end() || found->second != part.sequence)
    return Status::ok_status();  // ended meanwhile: its rows were in vain
  if (part.sample) --sequence.unanswered;
  if (result != nullptr && (!result->error.empty() || !result->sampled.finite)) {
    SequenceEvent event{.id = id, .index = sequence.output_size()};
    event.error = result->error.empty()
                      ? "the model's output is not finite, or every token is excluded by "
                        "logit_bias and end tokens"
                      : result->error;
    finish(sequence, FinishReason::error, std::move(event));
    return Status::ok_status();
  }
  if (sequence.incarnation == part.incarnation) {
    sequence.done = part.end;
    if (sequence.slot) group_of(sequence).remember_full_blocks(sequence);
  }
  if (part.sample) take_token(sequence, result->sampled);
  return Status::ok_status();
}

void Scheduler::take_token(Sequence& sequence, const SampledToken& sampled) {
  SequenceEvent event{.id = sequence.request.id,
                      .index = sequence.output_size(),
                      .token = sampled,
                      .cached_tokens = sequence.cached_tokens.value_or(0)};
  sequence.tokens.push_back(sampled.token);
  const SamplingParams& sampling = sequence.request.sampling;
  if (is_end(sampling, sampled.token) && sequence.output_size() > sampling.min_tokens) {
    finish(sequence, FinishReason::stop, std::move(event));
  } else if (int32_t(sequence.tokens.size()) >= sequence.last_output) {
    finish(sequence, FinishReason::length, std::move(event));
  } else {
    events_.push_back(std::move(event));
  }
}

std::vector<SequenceEvent> Scheduler::take_events() { return std::exchange(events_, {}); }

int32_t Scheduler::decodes() const {
  int32_t most = 0;
  for (const GroupState& group : groups_) most = std::max(most, turn(group.decodes()));
  return most;
}

SchedulerLoad Scheduler::load() const {
  SchedulerLoad load;
  load.waiting = static_cast<int32_t>(waiting_.size());
  for (const auto& [arrival, sequence] : waiting_) load.queued_prefill_tokens += sequence->length();
  for (const GroupState& group : groups_) {
    const GroupLoad part{static_cast<int32_t>(group.running().size()), group.blocks().counts()};
    load.running += part.running;
    load.queued_prefill_tokens += group.prefill_rows();
    load.blocks.total += part.blocks.total;
    load.blocks.free += part.blocks.free;
    load.blocks.parked += part.blocks.parked;
    load.blocks.held += part.blocks.held;
    load.groups.push_back(part);
  }
  load.preemptions = preemptions_;
  load.steps = steps_;
  return load;
}

Status Scheduler::check_integrity() const {
  size_t running = 0;
  for (size_t dp = 0; dp < groups_.size(); ++dp) {
    running += groups_[dp].running().size();
    COHORT_RETURN_IF_ERROR(groups_[dp].check_integrity().annotate(concat("dp group ", dp)));
  }
  if (running + waiting_.size() != sequences_.size())
    return internal_error(concat(running, " running, ", waiting_.size(), " waiting, ",
                                 sequences_.size(), " known sequences"));
  return Status::ok_status();
}

}  // namespace cohort
