// SPDX-License-Identifier: Apache-2.0
// The memory that the ranks of one emulated communicator share. Ranks are threads of one process,
// processes of one host, or a mix: all of them map one memfd, which the unique id names by process
// and descriptor. It has no name in a file system, so nothing stays behind however a rank ends.
#pragma once
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

namespace emu::nccl {
using Clock = std::chrono::steady_clock;

// Addresses only: pages that nobody writes to take no memory.
inline constexpr std::size_t kRegion = std::size_t(1) << 30;           // a rank's collective data
inline constexpr std::size_t kChannelRegion = std::size_t(256) << 20;  // of each ordered pair
inline constexpr int kMostRanks = 64;

enum class Kind : std::int32_t {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  all_to_all,
  send,
  receive
};
const char* name_of(Kind kind);

struct Call {  // what all ranks of a collective must agree on
  Kind kind;
  std::int32_t type, op, root;  // root: the peer of a send or receive
  std::uint64_t count;
};
std::string describe(const Call& call);

enum class Life : std::uint32_t { absent, attached, left, aborted };

struct Slot {  // written by its rank only
  std::atomic<Life> life;
  std::int32_t pid, device;
  std::uint64_t started;  // start of the process, in clock ticks since boot
  // Collectives that this rank announced in `call`, put its data of into its region, and is done
  // with. A rank announces number n when all are done with n - 1, so one region each is enough.
  std::atomic<std::uint64_t> posted, filled, done;
  Call call;
  std::atomic<std::uint64_t> splits_posted, splits_read;  // ncclCommSplit
  std::int32_t color, key;
  ncclUniqueId split_id;
};

struct Channel {  // of one ordered pair of ranks; counts messages
  std::atomic<std::uint64_t> sent, posted, filled, taken;
  Call send, receive;
};

struct Header {
  char nonce[64];
  std::atomic<std::uint32_t> ranks;
};

struct Ticket;

class World {
 public:
  // Maps the memory that `id` names; shared by the ranks of this process. Null and a reason in
  // `error` when that is impossible.
  static std::shared_ptr<World> attach(const ncclUniqueId& id, int ranks, std::string* error);
  World(int fd, int ranks);
  World(const World&) = delete;
  ~World();

  int size() const { return ranks_; }
  bool mapped() const { return base_ != nullptr; }
  Header& header() const { return *reinterpret_cast<Header*>(base_); }
  Slot& slot(int rank) const;
  Channel& channel(int from, int to) const;
  char* region(int rank) const;
  char* channel_region(int from, int to) const;
  bool take_rank(int rank, int device);  // false: somebody has it
  bool complete() const;                 // all ranks have attached
  bool external() const;                 // some rank is in another process
  // Why the rank will never answer again ("" as far as is known). Looks at processes at most
  // every 50 ms.
  std::string lost(int rank, Clock::time_point now);

  std::list<Ticket*> active;  // calls of this process's ranks that wait for others

 private:
  std::size_t slots_at_, channels_at_, data_at_, bytes_;
  int ranks_;
  char* base_ = nullptr;
  std::vector<bool> dead_;
  Clock::time_point looked_{};
};

ncclResult_t create_id(ncclUniqueId* id);
void discard_id(const ncclUniqueId& id);  // nobody will meet by it
void forget_id(const World& world);       // all ranks have attached: nobody needs the name any more
std::chrono::milliseconds timeout();      // COHORT_EMULATED_NCCL_TIMEOUT, in seconds

}  // namespace emu::nccl
