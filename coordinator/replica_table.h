// SPDX-License-Identifier: Apache-2.0
// The replicas that have ever connected, by name: who they are, how they are, and what of ours they
// hold. A state machine without I/O other than messages to its links. Used by the core thread.
//
//   CONNECTING -> SYNC (Hello taken) -> READY (first Load) -> DEAD
//   READY <-> SUSPECT (no Load for a while, or a rank makes no progress): no new work
//   a lost stream: CONNECTING for the reconnect grace, then DEAD; DRAINING: no new work, for good
#pragma once
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/cluster_view.h"
#include "coordinator/prefix_index.h"
#include "coordinator/router.h"
#include "coordinator/session_link.h"

namespace cohort {

struct ReplicaTimes {
  Duration suspect_after = std::chrono::seconds(3);  // without Load
  Duration dead_after = std::chrono::seconds(5);
  Duration reconnect_grace = std::chrono::seconds(1);  // after a lost stream
  Duration stall = std::chrono::seconds(5);            // of a rank without progress
};

// What a replica has of one sequence.
struct Assignment {
  uint64_t submit_number = 0;
  int64_t prefill_tokens = 0;  // 0 once the first token has come
};

struct ReplicaRecord {
  std::string name;
  uint64_t epoch = 0;
  uint64_t session = 0;  // 0: no stream
  std::shared_ptr<SessionLink> link;
  ReplicaState state = ReplicaState::connecting;
  std::string problem;
  int restarts = 0;
  replica::v1::Hello hello;
  replica::v1::Load load;
  std::shared_ptr<const ExpertView> experts;  // null: it has told of none
  bool loaded = false;                        // a Load has come in this session
  bool leaving = false;  // told to drain, or it turned work away, in this session
  TimePoint heard{};     // last Load, or Hello
  TimePoint lost{};      // when the stream ended
  uint64_t next_submit = 1;
  std::unordered_map<uint64_t, Assignment> assigned;  // by sequence
  PrefixIndex prefixes;

  bool alive() const { return state != ReplicaState::dead; }
  void leave(const std::string& why);  // no new work in this session
  // Room for another sequence with so many tokens to prefill.
  bool has_room(int64_t prefill_tokens) const;
  int64_t pending_prefill() const;
  RouteCandidate candidate() const;
};

class ReplicaTable {
 public:
  explicit ReplicaTable(const ReplicaTimes& times) : times_(times) {}

  struct Joined {
    ReplicaRecord* record = nullptr;
    bool resumed = false;  // the incarnation that we knew, on a new stream
    // Sequences of ours that an earlier incarnation had: they are lost.
    std::vector<uint64_t> lost;
  };
  // Errors say why this replica cannot serve here.
  Result<Joined> hello(uint64_t session, std::shared_ptr<SessionLink> link,
                       const replica::v1::Hello& hello, TimePoint now);
  // False if the session or the epoch is an old one.
  bool load(uint64_t session, const replica::v1::Load& load, TimePoint now);
  void closed(uint64_t session, TimePoint now);
  // Moves on what waited long enough. Returns the replicas that are newly dead, with what they had.
  std::vector<std::pair<ReplicaRecord*, std::vector<uint64_t>>> check(TimePoint now);

  ReplicaRecord* by_session(uint64_t session);
  ReplicaRecord* by_name(const std::string& name);
  bool any_alive() const;
  // The longest context that a replica alive can hold; 0 if none is.
  int max_context() const;
  std::map<std::string, ReplicaRecord>& all() { return replicas_; }
  const std::map<std::string, ReplicaRecord>& all() const { return replicas_; }
  std::vector<ReplicaView> view() const;

 private:
  std::vector<uint64_t> bury(ReplicaRecord& record, const std::string& why);
  void judge(ReplicaRecord& record, TimePoint now);

  const ReplicaTimes times_;
  std::string fingerprint_;  // of the first replica
  std::map<std::string, ReplicaRecord> replicas_;
};

}  // namespace cohort
