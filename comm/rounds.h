// SPDX-License-Identifier: Apache-2.0
// Collectives as rounds. In a round every member publishes one bounded chunk, and everyone waits
// for everyone's: all verbs are made of that one exchange, which a backend provides. With each
// round travels a tag; tags that differ mean that the members do not run the same collective.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "comm/communicator.h"
#include "comm/round_tag.h"
#include "comm/tree_sum.h"

namespace cohort {

// A range of bytes within a member's chunk.
struct Part {
  // As the bytes of a part that comes: what is in it tells, and the caller checks.
  static constexpr int64_t kToldInside = -1;
  // Neither side has a word for the other in this round.
  static constexpr int64_t kNone = -2;
  int64_t offset = 0, bytes = 0;
};

// What one rank sends to another, and what it receives. bytes may be Part::kNone, on both sides of
// a pair: they do not take part.
struct OutgoingRun {
  const std::byte* data = nullptr;
  int64_t bytes = Part::kNone;
};
struct IncomingRun {
  std::byte* data = nullptr;
  int64_t bytes = Part::kNone;
};

// Who is in a group; index: group rank.
struct GroupInfo {
  int rank = 0;
  std::vector<int> world_ranks;
  std::vector<std::string> hosts;
  std::string name;

  int size() const { return int(world_ranks.size()); }
  // "rank 3 on host n1": ranks in messages are those of the world.
  std::string peer(int group_rank) const;
};
// Some members of a group (group ranks, this one among them) as a group of their own, without name.
GroupInfo subgroup(const GroupInfo& info, const std::vector<int>& members);
// "shm tp group {0, 1}"
std::string group_name(const std::string& kind, const std::string& label,
                       const std::vector<int>& members);
// Members must be distinct, in [0, world_size) and contain `rank`.
Status check_members(const std::vector<int>& members, int rank, int world_size);

// The longest runs, which members tell each other: all of them run as many rounds as `most` takes.
// Where members are Part::kNone to each other, and so hear nothing from each other, `most` must
// come from elsewhere: `known` is passed around like it, without a meaning for the rounds.
struct Lengths {
  int64_t most = 0;
  int64_t known = 0;
};

class RoundCommunicator : public Communicator {
 public:
  int rank() const final { return info_.rank; }
  int size() const final { return info_.size(); }
  const std::string& name() const final { return info_.name; }

  Status all_reduce(const TreePlan& plan, float* pieces, float* out, int64_t count) final;
  Status all_gather(const void* in, void* out, std::span<const int64_t> bytes) final;
  Status all_to_all(const void* in, std::span<const int64_t> to, void* out,
                    std::span<const int64_t> from) final;
  Status broadcast(void* data, int64_t bytes, int root) final;
  Status send(const void* data, int64_t bytes, int peer) final;
  Status recv(void* data, int64_t bytes, int peer) final;
  Status barrier() final;

  // all_to_all with each peer's bytes where they are; this rank's own runs are ignored.
  Status exchange_runs(std::span<const OutgoingRun> to, std::span<const IncomingRun> from,
                       Lengths& lengths);
  // The verbs that come are parts of a collective of a larger group: they carry its tag. All
  // members must say so alike, before each of its collectives.
  void run_within(const RoundTag& outer);

  Traffic traffic() const final;
  bool shares_host(int peer) const final {
    return info_.hosts[size_t(peer)] == info_.hosts[size_t(rank())];
  }
  void abort(const Status& why) final;

 protected:
  // chunk_bytes: the most that a member can publish in one round; a multiple of 64.
  RoundCommunicator(GroupInfo info, int64_t chunk_bytes);

  // Where this rank's chunk of the coming round goes; chunk_bytes long, aligned to 64.
  virtual std::byte* outgoing() = 0;
  // Writes to outgoing().
  virtual void publish(std::byte* to, const void* from, int64_t bytes);
  // Runs a round: peer r gets to[r] of outgoing(), this rank gets from[r] of peer r's chunk. (A
  // backend of shared memory lets peers see all of it.) Checks the peers' tags with check_tag().
  virtual Status exchange(const RoundTag& tag, std::span<const Part> to,
                          std::span<const Part> from) = 0;
  // What came from a peer: its from[peer]. Valid until the next outgoing() or exchange().
  virtual const std::byte* incoming(int peer) const = 0;

  virtual Status send_bytes(const std::byte* data, int64_t bytes, int peer) = 0;
  virtual Status recv_bytes(std::byte* data, int64_t bytes, int peer) = 0;
  // Tells the peers, where that is possible, that this end will take no further part. Any thread,
  // more than once.
  virtual void give_up(const Status& why) = 0;

  const GroupInfo& info() const { return info_; }
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }
  Status abort_status() const;
  // Fails where they differ. Remembers theirs.
  Status check_tag(int peer, const RoundTag& mine, const RoundTag& theirs);
  // Fails where what the peer has sent is not what this rank receives.
  Status check_message(int peer, const MessageHeader& mine, const MessageHeader& theirs) const;
  // "rank 3 on host n1 (last in barrier 6 of step 41)", for those that do not come.
  std::string late_peer(int peer) const;

 private:
  Status run(FunctionRef<Status()> verb);
  RoundTag next_tag(Verb verb, int64_t bytes, uint64_t detail);
  // exchange() of to_ and from_, counted.
  Status round(const RoundTag& tag);
  // A message that was not met in time, with what this rank is at.
  Status late_message(const Status& status, const char* verb, int64_t bytes) const;
  void count(int peer, int64_t sent, int64_t received);
  Status reduce_direct(const RoundTag& tag, int64_t begin, int64_t count);
  Status reduce_sliced(const RoundTag& tag, int64_t begin, int64_t count);
  int64_t slice_begin(int64_t count, int rank) const;

  int64_t place_bytes() const;
  int64_t place_of(int owner, int peer) const;
  Status exchange_places(const RoundTag& tag, int64_t at, const Lengths& own);
  Status check_pair(const RoundTag& tag, int peer) const;
  Status take_places(const RoundTag& tag, int64_t at, Lengths& all);
  Status run_all_to_all(const RoundTag& tag, Lengths& lengths);

  // Arguments of the all_reduce that runs.
  struct Reduction {
    const TreePlan* plan = nullptr;
    const float* pieces = nullptr;
    float* out = nullptr;
    int64_t count = 0;
  };

  const GroupInfo info_;
  const int64_t chunk_bytes_;
  CollectiveCounter counter_;
  std::optional<RoundTag> outer_;
  std::vector<RoundTag> seen_;  // the latest of each peer
  Status failure_;              // the first one; the group is unusable after it
  Reduction reduction_;
  TreeSum tree_sum_;
  std::vector<Part> to_, from_;
  std::vector<const float*> sources_;
  std::vector<OutgoingRun> outgoing_runs_;
  std::vector<IncomingRun> incoming_runs_;
  std::atomic<int64_t> sent_within_{0}, received_within_{0}, sent_between_{0}, received_between_{0};

  std::atomic<bool> aborted_{false};
  mutable std::mutex abort_mutex_;
  Status abort_status_;
};

}  // namespace cohort
