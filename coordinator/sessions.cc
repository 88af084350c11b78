// SPDX-License-Identifier: Apache-2.0
// RequestService: what leaders say, and what happens when one is gone.
#include <algorithm>

#include "base/log.h"
#include "coordinator/request_service.h"

namespace cohort {

using replica::v1::CoordinatorMessage;

namespace {
// Whoever opens a stream has to say who it is, soon.
constexpr size_t kMostStrangers = 256;
constexpr Duration kHelloWithin = std::chrono::seconds(10);
}  // namespace

void RequestService::opened(uint64_t session, std::shared_ptr<SessionLink> link) {
  loop_.post([this, session, link = std::move(link)] {
    if (stopped_ || strangers_.size() >= kMostStrangers) return link->close();
    strangers_[session] = {link, std::chrono::steady_clock::now()};
  });
}

void RequestService::received(uint64_t session, replica::v1::LeaderMessage message) {
  loop_.post([this, session, message = std::move(message)] { take(session, message); });
}

void RequestService::closed(uint64_t session) {
  loop_.post([this, session] {
    strangers_.erase(session);
    ReplicaRecord* record = replicas_.by_session(session);
    replicas_.closed(session, std::chrono::steady_clock::now());
    if (record) announce_state(*record);
  });
}

void RequestService::take(uint64_t session, const replica::v1::LeaderMessage& message) {
  if (stopped_) return;
  const TimePoint now = std::chrono::steady_clock::now();
  switch (message.message_case()) {
    case replica::v1::LeaderMessage::kHello:
      return take_hello(session, message.hello());
    case replica::v1::LeaderMessage::kEvents:
      return take_events(session, message.events());
    case replica::v1::LeaderMessage::kLoad:
      if (replicas_.load(session, message.load(), now))
        announce_state(*replicas_.by_session(session));
      return;
    case replica::v1::LeaderMessage::MESSAGE_NOT_SET:
      return;
  }
}

void RequestService::take_hello(uint64_t session, const replica::v1::Hello& hello) {
  const auto stranger = strangers_.find(session);
  if (stranger == strangers_.end()) return;  // a second Hello of the same stream
  const auto link = stranger->second.link;
  strangers_.erase(stranger);
  auto joined = replicas_.hello(session, link, hello, std::chrono::steady_clock::now());
  if (!joined.ok()) {
    log_warning(concat("replica '", hello.name().substr(0, 64),
                       "' is turned away: ", joined.status().message()));
    return link->reject(joined.status().message());
  }
  max_context_ = std::min(model_->max_context, replicas_.max_context());
  announce_state(*joined->record);
  resume(*joined->record, hello);
  for (const uint64_t id : joined->lost) requeue(id, "its replica was restarted", true);
}

// What the leader still has of ours goes on where we stand; what it lost starts again elsewhere.
void RequestService::resume(ReplicaRecord& record, const replica::v1::Hello& hello) {
  CoordinatorMessage message;
  auto* welcome = message.mutable_welcome();
  welcome->set_coordinator_epoch(epoch_);
  std::unordered_map<uint64_t, bool> live;
  for (const auto& entry : hello.live()) {
    const Sequence* sequence = journal_.sequence(entry.request());
    if (!sequence || sequence->attempt != entry.attempt() || sequence->replica_name != record.name)
      continue;
    live[entry.request()] = true;
    auto* ack = welcome->add_resume();
    ack->set_request(entry.request());
    ack->set_attempt(entry.attempt());
    ack->set_next_index(static_cast<uint32_t>(sequence->output.size()));
  }
  record.link->send(std::move(message));
  std::vector<uint64_t> lost;
  for (const auto& [id, assignment] : record.assigned) {
    if (!live.contains(id)) lost.push_back(id);
  }
  std::sort(lost.begin(), lost.end());
  for (const uint64_t id : lost) requeue(id, "its replica does not know it", false);
}

void RequestService::take_events(uint64_t session, const replica::v1::Events& events) {
  ReplicaRecord* record = replicas_.by_session(session);
  if (!record || events.epoch() != record->epoch || !record->alive()) return;
  for (const auto& event : events.events()) take_event(*record, event);
}

void RequestService::take_event(ReplicaRecord& record, const replica::v1::TokenEvent& event) {
  Sequence* sequence = journal_.sequence(event.request());
  if (!sequence || sequence->attempt != event.attempt() || sequence->replica_name != record.name)
    return acknowledge_stray(record, event);
  const size_t next = sequence->output.size();
  if (event.index() > next) {
    log_warning(concat("replica ", record.name, " skipped from token ", next, " to ", event.index(),
                       " of a sequence: it starts again"));
    return requeue(sequence->id, "its replica lost some of its tokens", false);
  }
  if (!deliver(record, *sequence, event)) return;  // it is complete
  finish_event(*sequence, event);
}

// Nobody here wants these tokens any more: the leader may forget them.
void RequestService::acknowledge_stray(ReplicaRecord& record,
                                       const replica::v1::TokenEvent& event) {
  if (!record.link) return;
  CoordinatorMessage message;
  auto* ack = message.mutable_ack();
  ack->set_request(event.request());
  ack->set_attempt(event.attempt());
  ack->set_next_index(event.index() + static_cast<uint32_t>(event.tokens_size()));
  record.link->send(std::move(message));
}

void RequestService::check_replicas(TimePoint now) {
  for (auto& [record, lost] : replicas_.check(now)) {
    log_warning(concat("replica ", record->name, " is dead: ", record->problem, "; ", lost.size(),
                       " sequences go on elsewhere"));
    for (const uint64_t id : lost) requeue(id, "its replica died", true);
  }
  for (const auto& [name, record] : replicas_.all()) announce_state(record);
  for (const auto& [session, stranger] : strangers_) {
    if (now - stranger.since > kHelloWithin) stranger.link->close();
  }
}

void RequestService::announce_state(const ReplicaRecord& record) {
  const auto [at, fresh] = announced_.try_emplace(record.name, ReplicaState::connecting);
  if (!fresh && at->second == record.state) return;
  at->second = record.state;
  announce_(concat("replica ", record.name, " ", name(record.state),
                   " tp=", record.hello.layout().tp(), " pp=", record.hello.layout().pp(),
                   " ranks=", record.hello.ranks_size(),
                   record.problem.empty() ? "" : " problem=\"" + record.problem + "\""));
  last_publish_ = {};  // probes learn of it now
}

// The sequence lost its place and goes to the front, unless its limits are reached or it was
// complete but for the message that says so.
void RequestService::requeue(uint64_t sequence_id, const std::string& why, bool crashed) {
  Sequence* sequence = journal_.sequence(sequence_id);
  if (!sequence) return;
  detach(*sequence, true);
  sequence->crashes += crashed;
  const OpenRequest& request = *journal_.request(sequence->request);
  if (!sequence->output.empty() &&
      std::binary_search(request.end_tokens.begin(), request.end_tokens.end(),
                         sequence->output.back()) &&
      static_cast<int>(sequence->output.size()) > request.request.sampling.min_tokens)
    return complete(*sequence, FinishReason::stop);
  if (static_cast<int>(sequence->output.size()) >= sequence->max_tokens)
    return complete(*sequence, FinishReason::length);
  if (sequence->crashes >= options_.most_crashes)
    return fail(sequence->request,
                {Code::kAborted,
                 concat("the request was running on ", sequence->crashes,
                        " replicas when they crashed and is suspected to be the cause; it is not "
                        "tried again"),
                 {},
                 {},
                 true},
                Outcome::failed);
  const uint32_t failures = sequence->attempt - sequence->turned_away;
  if (failures >= options_.most_attempts)
    return fail(sequence->request,
                {Code::kUnavailable,
                 concat("the request failed on ", failures, " replicas; last: ", why),
                 {},
                 5,
                 false},
                Outcome::failed);
  sequence->waiting_since = std::chrono::steady_clock::now();
  resubmit_.push_back(sequence_id);
  metrics_.failover();
}

bool RequestService::drain(const std::string& replica_name) {
  const auto view = board_.read();
  const bool known = std::any_of(view->replicas.begin(), view->replicas.end(),
                                 [&](const ReplicaView& r) { return r.name == replica_name; });
  if (!known) return false;
  loop_.post([this, replica_name] {
    ReplicaRecord* record = replicas_.by_name(replica_name);
    if (!record || !record->link) return;
    CoordinatorMessage message;
    message.mutable_drain();
    record->leave("it is draining");
    record->link->send(std::move(message));
  });
  return true;
}

}  // namespace cohort
