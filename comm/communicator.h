// SPDX-License-Identifier: Apache-2.0
// How ranks exchange tensors. A Communicator is one rank's end of a group. All members call the
// same verbs in the same order; the step plan decides that order, so ranks cannot diverge, and a
// sequence number within the step (with the verb, its size and the place of the caller, see Mark)
// is checked on every collective: a mismatch is an error that names both sides. One thread at a
// time uses a communicator.
//
// Every wait ends: after timeout() a verb fails with DEADLINE_EXCEEDED naming the peers that did
// not come, and a peer that is known to be gone gives UNAVAILABLE naming it. After a failure the
// group is unusable; the rank ends and its replica restarts.
//
// A group of one is a SoloCommunicator whose verbs at most copy, so that no layer asks how many
// ranks there are.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/device.h"
#include "base/dtype.h"
#include "base/status.h"
#include "base/unit_tree.h"

namespace cohort {

// Where the caller is when it calls a verb. It travels with every collective and must be equal on
// all members; the number of a collective starts at 1 in each step.
struct Mark {
  uint64_t step = 0;
  uint64_t place = 0;  // the caller's own code, say of an operation and a layer
  friend bool operator==(const Mark&, const Mark&) = default;
};
using PlaceText = std::string (*)(uint64_t place);

// Payload that this rank has exchanged with its peers, without headers: of this host, of others.
struct Traffic {
  int64_t sent_within = 0, received_within = 0;
  int64_t sent_between = 0, received_between = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;  // within the group
  virtual int size() const = 0;
  // "shm tp group {0, 1}", for messages.
  virtual const std::string& name() const = 0;

  // The sum of all ranks' pieces in tree order, the same bits on every rank. pieces: this rank's
  // plan.pieces(rank()).size() vectors of `count` floats, back to back (may be overwritten);
  // out [count], may not overlap pieces. plan.ranks() == size().
  virtual Status all_reduce(const TreePlan& plan, float* pieces, float* out, int64_t count) = 0;

  // False where sums are not made in tree order unless they must be: then a rank adds its own units
  // up as it likes, and calls add_up instead of all_reduce.
  virtual bool ordered() const { return true; }
  // The sum of all ranks' in [count] of f32, f16 or bf16, in any order, the same bits on every
  // rank. in may be out. Only where ordered() is false.
  virtual Status add_up(const void* in, void* out, int64_t count, DType dtype);

  // Memory for what is summed: faster where the transport can register it. Zeroed; throws
  // OutOfMemory. Called by all ranks alike.
  virtual Buffer allocate(Device& device, size_t bytes) { return device.allocate(bytes); }

  // What went wrong with verbs that had returned already (those of a GPU). Any thread.
  virtual Status status() const { return {}; }

  // Everybody's bytes, one after the other in rank order. bytes[r]: what rank r contributes (the
  // same on all ranks); out holds their sum.
  virtual Status all_gather(const void* in, void* out, std::span<const int64_t> bytes) = 0;

  // Everybody sends to everybody: this rank's `in` holds to[r] bytes for each rank r, in rank
  // order, and `out` receives from[r] bytes of each. to[r] here is from[this rank] on rank r.
  // `in` and `out` may not overlap.
  virtual Status all_to_all(const void* in, std::span<const int64_t> to, void* out,
                            std::span<const int64_t> from) = 0;

  virtual Status broadcast(void* data, int64_t bytes, int root) = 0;

  // Point to point, in order per pair; sizes must match. The buffer is free again when send
  // returns. While fewer than kHeldMessages messages to a peer are unread, send of at most
  // kHeldBytes returns without waiting for it, whatever carries them; any other send may wait for
  // the receive.
  static constexpr int kHeldMessages = 4;
  static constexpr int64_t kHeldBytes = 4000;
  virtual Status send(const void* data, int64_t bytes, int peer) = 0;
  virtual Status recv(void* data, int64_t bytes, int peer) = 0;

  virtual Status barrier() = 0;

  // Makes every verb that waits now or later on this end fail with `why`. Any thread.
  virtual void abort(const Status& why) = 0;

  // For the verbs that come. send and recv only tell it in messages: their two ends may be in
  // different steps and places.
  void set_mark(const Mark& mark) { mark_ = mark; }
  const Mark& mark() const { return mark_; }
  // What makes a text of a place; null: its number is said.
  void set_place_text(PlaceText text) { place_text_ = text; }
  PlaceText place_text() const { return place_text_; }

  // Since the group was made. Any thread. Verbs in a graph of a GPU count once, when captured.
  virtual Traffic traffic() const { return {}; }
  virtual bool shares_host(int /*peer*/) const { return true; }

  void set_timeout(Duration timeout) { timeout_ = timeout; }
  Duration timeout() const { return timeout_; }

 private:
  Duration timeout_ = std::chrono::seconds(30);
  Mark mark_;
  PlaceText place_text_ = nullptr;
};

// All ranks of a replica. Makes the groups in which they talk.
class World {
 public:
  virtual ~World() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& host() const = 0;  // of this rank
  // Small host-side exchange at start-up: everybody's text, in rank order.
  virtual Result<std::vector<std::string>> exchange(const std::string& text, Duration timeout) = 0;
  // A group of the given world ranks, ascending order not required; member i becomes group rank i.
  // Called by all members (and only them) in the same order; label: "tp", "pp", for messages.
  virtual Result<std::unique_ptr<Communicator>> group(const std::vector<int>& members,
                                                      const std::string& label) = 0;
};

std::unique_ptr<Communicator> make_solo_communicator(const std::string& label);

// Ranks as threads of one process. Worlds of one LocalWorlds talk to each other; each is used by
// its own thread. For tests and for engines of one process.
std::vector<std::unique_ptr<World>> make_local_worlds(int size);
// The same with a host for each rank, for tests of what several hosts do: groups are made as they
// would be there.
std::vector<std::unique_ptr<World>> make_local_hosts(const std::vector<std::string>& hosts);

// automatic: shared memory (processes of one host) where a group's members share a host, MPI
// between hosts, and both together where some of them do (comm/hierarchical.h). shm, mpi: that
// alone, for all.
enum class CommunicatorKind { automatic, shm, mpi };
// Initialises MPI (once per process). UNIMPLEMENTED in builds without MPI (no_mpi.cc).
// host: the name of this rank's host; empty: that of the system. Ranks of different names share no
// memory, be they on one machine: containers and network namespaces stand for hosts that way.
Result<std::unique_ptr<World>> make_mpi_world(CommunicatorKind kind, const std::string& host = "");

}  // namespace cohort
