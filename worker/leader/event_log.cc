// SPDX-License-Identifier: Apache-2.0
#include "worker/leader/event_log.h"

#include <algorithm>

#include "worker/leader/session_messages.h"

namespace cohort {

// Keeps unsent_ right around a change of `attempt`: before = what has_unsent() was.
void EventLog::count_unsent(const Attempt& attempt, bool before) {
  unsent_ += int64_t(attempt.has_unsent()) - int64_t(before);
}

bool EventLog::open(SequenceId id, int32_t next_index) {
  Attempt attempt;
  attempt.first = attempt.sent = next_index;
  return attempts_.emplace(id, std::move(attempt)).second;
}

bool EventLog::append(const SequenceEvent& event) {
  const auto found = attempts_.find(event.id);
  if (found == attempts_.end() || found->second.ended) return true;
  Attempt& attempt = found->second;
  const bool before = attempt.has_unsent();
  const bool full = event.token && tokens_ >= capacity_;
  if (event.token && !full) {
    if (attempt.cached_tokens == 0) attempt.cached_tokens = event.cached_tokens;
    attempt.tokens.push_back(to_wire(*event.token));
    ++tokens_;
  }
  if (event.finish && !full) {
    attempt.ended = true;
    attempt.end.set_finish(to_wire(*event.finish));
    attempt.end.set_error(event.error);
    attempt.end.set_invalid_request(event.refused == Code::kInvalidArgument);
    attempt.end.set_leaving(event.refused == Code::kUnavailable);
  }
  if (full) {
    attempt.ended = true;
    attempt.end.set_finish(replica::v1::FINISH_ERROR);
    attempt.end.set_error(concat("the leader keeps ", capacity_,
                                 " tokens that the coordinator has not acknowledged, and no more"));
  }
  count_unsent(attempt, before);
  return !full;
}

void EventLog::acknowledge(SequenceId id, int32_t next_index) {
  const auto found = attempts_.find(id);
  if (found == attempts_.end()) return;
  Attempt& attempt = found->second;
  const bool before = attempt.has_unsent();
  const bool end_taken = attempt.end_sent && next_index >= attempt.next();
  while (!attempt.tokens.empty() && attempt.first < std::min(next_index, attempt.sent)) {
    attempt.tokens.pop_front();
    ++attempt.first;
    --tokens_;
  }
  count_unsent(attempt, before);
  if (end_taken) forget(id);
}

void EventLog::forget(SequenceId id) {
  const auto found = attempts_.find(id);
  if (found == attempts_.end()) return;
  tokens_ -= static_cast<int64_t>(found->second.tokens.size());
  unsent_ -= found->second.has_unsent() ? 1 : 0;
  attempts_.erase(found);
}

void EventLog::forget_ended(TimePoint since) {
  for (auto it = attempts_.begin(); it != attempts_.end();) {
    const SequenceId id = it->first;
    const Attempt& attempt = it->second;
    const bool old = attempt.end_sent && !attempt.has_unsent() && attempt.end_sent_at < since;
    ++it;
    if (old) forget(id);
  }
}

std::vector<SequenceId> EventLog::resume(const std::map<SequenceId, int32_t>& from) {
  std::vector<SequenceId> gone;
  for (auto& [id, attempt] : attempts_) {
    const auto start = from.find(id);
    if (start == from.end()) {
      gone.push_back(id);
      continue;
    }
    const bool before = attempt.has_unsent();
    attempt.end_sent = false;
    attempt.sent = std::clamp(start->second, attempt.first, attempt.next());
    count_unsent(attempt, before);
  }
  for (const SequenceId id : gone) forget(id);
  return gone;
}

std::vector<replica::v1::LiveRequest> EventLog::live() const {
  std::vector<replica::v1::LiveRequest> live;
  for (const auto& [id, attempt] : attempts_) {
    replica::v1::LiveRequest request;
    request.set_request(id.request);
    request.set_attempt(id.attempt);
    request.set_next_index(static_cast<uint32_t>(attempt.next()));
    live.push_back(std::move(request));
  }
  return live;
}

std::vector<replica::v1::TokenEvent> EventLog::take_unsent(int64_t max_tokens, TimePoint now) {
  std::vector<replica::v1::TokenEvent> events;
  if (unsent_ == 0) return events;
  for (auto& [id, attempt] : attempts_) {
    if (max_tokens <= 0) break;
    if (!attempt.has_unsent()) continue;
    const bool sends_end = attempt.ended && attempt.next() - attempt.sent <= max_tokens;
    replica::v1::TokenEvent event;
    if (sends_end) event = attempt.end;
    event.set_request(id.request);
    event.set_attempt(id.attempt);
    event.set_index(static_cast<uint32_t>(attempt.sent));
    event.set_cached_tokens(attempt.cached_tokens);
    for (; attempt.sent < attempt.next() && max_tokens > 0; ++attempt.sent, --max_tokens)
      *event.add_tokens() = attempt.tokens[size_t(attempt.sent - attempt.first)];
    if (sends_end) {
      attempt.end_sent = true;
      attempt.end_sent_at = now;
    }
    count_unsent(attempt, true);
    events.push_back(std::move(event));
  }
  return events;
}

std::vector<SequenceId> EventLog::others(SequenceId id) const {
  std::vector<SequenceId> found;
  for (auto it = attempts_.lower_bound({id.request, 0});
       it != attempts_.end() && it->first.request == id.request; ++it)
    if (it->first.attempt != id.attempt) found.push_back(it->first);
  return found;
}

std::vector<SequenceId> EventLog::ids() const {
  std::vector<SequenceId> ids;
  for (const auto& [id, attempt] : attempts_) ids.push_back(id);
  return ids;
}

}  // namespace cohort
