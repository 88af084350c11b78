// SPDX-License-Identifier: Apache-2.0
// RequestService: from the queue to the replicas, and what waits too long.
#include <algorithm>

#include "base/log.h"
#include "coordinator/request_service.h"

namespace cohort {

namespace {
constexpr Duration kPublishEvery = std::chrono::milliseconds(100);
}

void RequestService::dispatch(TimePoint now) {
  while (!resubmit_.empty()) {
    Sequence* sequence = journal_.sequence(resubmit_.front());
    if (sequence && !place(*sequence, now)) return;
    resubmit_.pop_front();
  }
  while (const FairQueue::Entry* entry = queue_.peek(now)) {
    Sequence* sequence = journal_.sequence(entry->sequence);
    // The first in line waits for room, and all others behind it: overtaking would starve it.
    if (sequence && !place(*sequence, now)) return;
    queue_.pop(now);
  }
}

// Gives the sequence to the best replica with room; false if there is none.
bool RequestService::place(Sequence& sequence, TimePoint) {
  std::vector<RouteCandidate> candidates;
  std::vector<ReplicaRecord*> records;
  const int64_t prefill = sequence.prefill_tokens();
  const int64_t left = sequence.max_tokens - static_cast<int64_t>(sequence.output.size());
  for (auto& [name, record] : replicas_.all()) {
    if (record.state != ReplicaState::ready || !record.link) continue;
    if (record.hello.max_context() <= prefill || !record.has_room(prefill)) continue;
    RouteCandidate candidate = record.candidate();
    candidate.matched_tokens =
        static_cast<int64_t>(record.prefixes.matched(*sequence.chain)) * kBlockTokens;
    candidates.push_back(candidate);
    records.push_back(&record);
  }
  const auto chosen = choose_replica(candidates, prefill, left, random_);
  if (!chosen) return false;
  send(sequence, *records[*chosen], candidates[*chosen].matched_tokens);
  return true;
}

void RequestService::send(Sequence& sequence, ReplicaRecord& record, int64_t matched) {
  OpenRequest* request = journal_.request(sequence.request);
  COHORT_CHECK(request != nullptr);
  if (sequence.attempt == 0) {
    admission_.queued_changed(-1, -request->tokens_per_sequence);
    --request->queued_sequences;
    request->queued_tokens -= request->tokens_per_sequence;
    metrics_.prompt_tokens(static_cast<int64_t>(sequence.prompt->size()), 0);
  }
  ++sequence.attempt;
  sequence.acknowledged = sequence.output.size();
  sequence.replica_name = record.name;
  const uint64_t number = record.next_submit++;
  record.assigned[sequence.id] = {number,
                                  std::max<int64_t>(1, sequence.prefill_tokens() - matched)};
  record.prefixes.insert(*sequence.chain);
  replica::v1::CoordinatorMessage message;
  *message.mutable_submit() = submit_message(sequence, *request, number);
  record.link->send(std::move(message));
}

void RequestService::check_waiting(TimePoint now) {
  if (replicas_.any_alive()) had_replica_ = now;
  // A replica with a longer context may have left while a long request waited.
  const int64_t context = replicas_.max_context();
  std::vector<uint64_t> hopeless;
  for (const auto& [id, sequence] : journal_.sequences) {
    if (sequence->prefill_tokens() < context) continue;
    const TimePoint since =
        context == 0 ? std::max(had_replica_, sequence->waiting_since) : sequence->waiting_since;
    if (sequence->replica_name.empty() && now - since > options_.replica_wait)
      hopeless.push_back(sequence->request);
  }
  for (const uint64_t request : hopeless)
    fail(request,
         {Code::kUnavailable,
          concat("no replica has been available for ", seconds(options_.replica_wait), " s"),
          {},
          10,
          false},
         Outcome::failed);
}

void RequestService::check_deadlines(TimePoint now) {
  std::vector<uint64_t> late;
  for (const auto& [id, request] : journal_.requests) {
    if (request->deadline && now >= *request->deadline) late.push_back(id);
  }
  for (const uint64_t id : late)
    fail(id, {Code::kDeadlineExceeded, "the request's deadline has passed", {}, {}, true},
         Outcome::timed_out);
}

void RequestService::publish(TimePoint now) {
  if (now - last_publish_ < kPublishEvery && !stopped_) return;
  last_publish_ = now;
  auto view = std::make_shared<ClusterView>();
  view->replicas = replicas_.view();
  for (const ReplicaView& r : view->replicas) view->running += r.assigned;
  view->waiting = static_cast<int>(queue_.size() + resubmit_.size());
  board_.publish(std::move(view));
}

}  // namespace cohort
