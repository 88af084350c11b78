// SPDX-License-Identifier: Apache-2.0
// RequestService: from token events to the clients, and how sequences end.
#include <algorithm>

#include "base/log.h"
#include "coordinator/request_service.h"

namespace cohort {

using replica::v1::CoordinatorMessage;

namespace {
// Tokens between acknowledgements: small enough that a leader keeps little.
constexpr size_t kAckEvery = 16;

// Records of tokens that are part of the text for certain go out. all: nothing cuts any more.
void release_records(Sequence& sequence, bool all, OutputDelta& delta) {
  while (!sequence.held.empty() && (all || sequence.held.front().begin < sequence.text.shown())) {
    delta.logprobs.push_back(std::move(sequence.held.front().record));
    sequence.held.pop_front();
  }
}
}  // namespace

TokenRecord RequestService::record_of(const replica::v1::Token& token) const {
  const auto chance = [&](TokenId id, float logprob) {
    return TokenChance{id, logprob, model_->tokenizer->token_bytes(id)};
  };
  TokenRecord record{chance(token.id(), token.logprob()), {}};
  for (const auto& top : token.top()) record.top.push_back(chance(top.token(), top.logprob()));
  return record;
}

// Takes the tokens that are new and shows them. False if the sequence is complete and gone.
bool RequestService::deliver(ReplicaRecord& record, Sequence& sequence,
                             const replica::v1::TokenEvent& event) {
  OpenRequest& request = *journal_.request(sequence.request);
  const SamplingOptions& sampling = request.request.sampling;
  const bool ends = event.finish() == replica::v1::FINISH_STOP;
  const size_t begin = sequence.output.size() - event.index();  // earlier ones came before
  const size_t count = static_cast<size_t>(event.tokens_size());
  OutputDelta delta{
      .choice = sequence.choice, .text = {}, .tokens = {}, .logprobs = {}, .finish = {}};
  for (size_t i = begin; i < count && !sequence.text.stopped(); ++i) {
    const auto& token = event.tokens(static_cast<int>(i));
    sequence.output.push_back(token.id());
    delta.tokens.push_back(token.id());
    const bool last = ends && i + 1 == count;
    const size_t at = sequence.text.decoded();
    delta.text += sequence.text.push(token.id(), last);
    if (sampling.logprobs && (!last || sampling.include_stop_text))
      sequence.held.push_back({at, record_of(token)});
  }
  release_records(sequence, sampling.stop.empty(), delta);
  if (event.cached_tokens() > 0 && sequence.attempt == 1 && sequence.cached_tokens == 0) {
    sequence.cached_tokens = event.cached_tokens();
    metrics_.prompt_tokens(0, event.cached_tokens());
  }
  if (!delta.tokens.empty()) {
    record.assigned[sequence.id].prefill_tokens = 0;
    count_tokens(request, sequence, static_cast<int64_t>(delta.tokens.size()));
    request.sink->output(std::move(delta));
  }
  if (sequence.text.stopped()) {
    const bool runs_on = event.finish() == replica::v1::FINISH_UNSPECIFIED;
    if (!runs_on) acknowledge_stray(record, event);
    detach(sequence, runs_on);
    complete(sequence, FinishReason::stop);
    return false;
  }
  if (sequence.output.size() - sequence.acknowledged >= kAckEvery ||
      event.finish() != replica::v1::FINISH_UNSPECIFIED)
    acknowledge(record, sequence);
  return true;
}

void RequestService::count_tokens(OpenRequest& request, Sequence& sequence, int64_t fresh) {
  const TimePoint now = std::chrono::steady_clock::now();
  const bool first = static_cast<int64_t>(sequence.output.size()) == fresh;
  if (first)
    metrics_.first_token(seconds(now - request.arrived));
  else
    metrics_.next_token(seconds(now - sequence.last_token) / static_cast<double>(fresh));
  sequence.last_token = now;
  request.started = true;
  request.usage.completion_tokens += fresh;
  metrics_.generation_tokens(fresh);
  queue_.charge_output(request.request.tenant, fresh);
}

void RequestService::acknowledge(ReplicaRecord& record, Sequence& sequence) {
  if (!record.link) return;
  sequence.acknowledged = sequence.output.size();
  CoordinatorMessage message;
  auto* ack = message.mutable_ack();
  ack->set_request(sequence.id);
  ack->set_attempt(sequence.attempt);
  ack->set_next_index(static_cast<uint32_t>(sequence.output.size()));
  record.link->send(std::move(message));
}

void RequestService::finish_event(Sequence& sequence, const replica::v1::TokenEvent& event) {
  switch (event.finish()) {
    case replica::v1::FINISH_STOP:
    case replica::v1::FINISH_LENGTH:
      detach(sequence, false);
      return complete(sequence, event.finish() == replica::v1::FINISH_STOP ? FinishReason::stop
                                                                           : FinishReason::length);
    case replica::v1::FINISH_CANCELLED:
      return requeue(sequence.id, "its replica gave it up", false);
    case replica::v1::FINISH_ERROR:
      if (event.invalid_request())
        return fail(sequence.request, invalid_request(event.error()), Outcome::rejected);
      if (event.leaving()) return turned_away(sequence, event.error());
      log_warning(concat("replica ", sequence.replica_name, " failed a sequence: ", event.error()));
      return requeue(sequence.id, event.error(), false);
    default:
      return;
  }
}

// Its replica is going: it gets nothing new, and the sequence has lost nothing but its place.
void RequestService::turned_away(Sequence& sequence, const std::string& why) {
  if (ReplicaRecord* record = replicas_.by_name(sequence.replica_name)) {
    record->leave(why);
    announce_state(*record);
  }
  ++sequence.turned_away;
  requeue(sequence.id, why, false);
}

// The sequence has no replica any more. tell_replica: that one may still work on it.
void RequestService::detach(Sequence& sequence, bool tell_replica) {
  ReplicaRecord* record =
      sequence.replica_name.empty() ? nullptr : replicas_.by_name(sequence.replica_name);
  sequence.replica_name.clear();
  if (!record) return;
  record->assigned.erase(sequence.id);
  if (!record->link || !tell_replica || !record->alive()) return;
  CoordinatorMessage message;
  message.mutable_cancel()->set_request(sequence.id);
  message.mutable_cancel()->set_attempt(sequence.attempt);
  record->link->send(std::move(message));
}

void RequestService::complete(Sequence& sequence, FinishReason reason) {
  OpenRequest& request = *journal_.request(sequence.request);
  const uint64_t request_id = request.id, sequence_id = sequence.id;
  OutputDelta last{
      .choice = sequence.choice, .text = {}, .tokens = {}, .logprobs = {}, .finish = reason};
  if (!sequence.text.stopped()) last.text = sequence.text.flush();
  // A stop string may be complete only with the last bytes of the decoder.
  if (sequence.text.stopped()) last.finish = FinishReason::stop;
  release_records(sequence, !sequence.text.stopped(), last);
  // Prompts count once, and what the first choice finds was there before the request.
  if (sequence.choice % request.request.n == 0)
    request.usage.cached_tokens += sequence.cached_tokens;
  const Outcome outcome = *last.finish == FinishReason::stop ? Outcome::stop : Outcome::length;
  request.sink->output(std::move(last));
  std::erase(request.sequences, sequence_id);
  journal_.sequences.erase(sequence_id);
  admission_.leave(request.request.tenant, 1);
  --request.admitted_sequences;
  if (!request.sequences.empty()) return;
  metrics_.request_done(outcome, seconds(std::chrono::steady_clock::now() - request.arrived));
  request.sink->finished(request.usage);
  journal_.requests.erase(request_id);
}

void RequestService::fail(uint64_t request_id, const Failure& failure, Outcome outcome) {
  OpenRequest* request = journal_.request(request_id);
  if (!request) return;
  const auto sink = request->sink;
  metrics_.request_done(outcome, 0);
  drop(*request);
  sink->failed(failure);
}

// Forgets the request and everything of it, here and on the replicas.
void RequestService::drop(OpenRequest& request) {
  for (const uint64_t id : request.sequences) {
    Sequence& sequence = *journal_.sequence(id);
    if (sequence.attempt == 0) queue_.erase(id);
    detach(sequence, true);
    journal_.sequences.erase(id);
  }
  admission_.queued_changed(-request.queued_sequences, -request.queued_tokens);
  admission_.leave(request.request.tenant, request.admitted_sequences);
  journal_.requests.erase(request.id);
}

}  // namespace cohort
