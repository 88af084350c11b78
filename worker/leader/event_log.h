// SPDX-License-Identifier: Apache-2.0
// The output that the coordinator has not acknowledged, per attempt: what a reconnect sends again.
// An attempt stays until its end was sent and all its tokens are acknowledged. Should that
// acknowledgement be an older one than the end and the stream break just then, the coordinator
// finds the attempt gone and lets another one go on: an end without a token is an error or a
// cancellation. Not thread-safe.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "base/clock.h"
#include "comm/wire/replica.pb.h"
#include "worker/leader/sequence.h"

namespace cohort {

class EventLog {
 public:
  // capacity: unacknowledged tokens of all attempts together.
  explicit EventLog(int64_t capacity) : capacity_(capacity) {}

  // An attempt begins; its next token has this index. False if it is known already.
  bool open(SequenceId id, int32_t next_index);
  // An event of an open attempt; others are ignored. False: there is no room, the attempt was ended
  // with an error and has to be cancelled.
  bool append(const SequenceEvent& event);
  // Everything below next_index has been taken.
  void acknowledge(SequenceId id, int32_t next_index);
  void forget(SequenceId id);
  // Attempts that ended and were sent before `since`, on a stream that still stands: they arrived.
  void forget_ended(TimePoint since);

  // A new stream: each attempt starts again at the given index; those not named are forgotten and
  // returned.
  std::vector<SequenceId> resume(const std::map<SequenceId, int32_t>& from);
  // For the greeting of a new stream.
  std::vector<replica::v1::LiveRequest> live() const;
  // What was not sent on this stream, one event per attempt; now it counts as sent. Up to about
  // `max_tokens` of them.
  std::vector<replica::v1::TokenEvent> take_unsent(int64_t max_tokens, TimePoint now);
  bool has_unsent() const { return unsent_ > 0; }

  // Other attempts at the same request that are open.
  std::vector<SequenceId> others(SequenceId id) const;
  std::vector<SequenceId> ids() const;
  bool contains(SequenceId id) const { return attempts_.contains(id); }
  bool empty() const { return attempts_.empty(); }

 private:
  struct Attempt {
    int32_t first = 0;  // index of tokens[0]: the first that is not acknowledged
    int32_t sent = 0;   // index of the next token to send
    std::deque<replica::v1::Token> tokens;
    int32_t cached_tokens = 0;
    bool ended = false, end_sent = false;
    TimePoint end_sent_at{};
    replica::v1::TokenEvent end;  // finish, error, whose fault
    int32_t next() const { return first + static_cast<int32_t>(tokens.size()); }
    bool has_unsent() const { return sent < next() || (ended && !end_sent); }
  };
  void count_unsent(const Attempt& attempt, bool before);

  const int64_t capacity_;
  std::map<SequenceId, Attempt> attempts_;
  int64_t tokens_ = 0;
  int64_t unsent_ = 0;  // attempts that have something to send
};

}  // namespace cohort
