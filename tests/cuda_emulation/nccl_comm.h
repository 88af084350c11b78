// SPDX-License-Identifier: Apache-2.0
// One rank of an emulated communicator and its calls. All of it is guarded by the runtime's lock.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda_emulation/nccl_world.h"
#include "tests/cuda_emulation/runtime.h"

namespace emu::nccl {

struct Comm {
  std::shared_ptr<World> world;  // null until a split has said who is in it
  int rank = 0, size = 0, device = 0;
  bool blocking = true;
  bool aborted = false, destroyed = false, finalized = false;
  ncclResult_t async = ncclSuccess;
  std::string last_error;
  // Non-blocking: what is still to be done, at each ncclCommGetAsyncError, before the state is
  // success. True: over.
  std::function<bool()> setup;
  std::deque<std::function<ncclResult_t()>> deferred;
  int polls_left = 0;
  // Launched and completed calls of this rank, one after another whatever the stream; of them the
  // collectives, whose numbers all ranks must agree on; messages to and from each peer.
  std::uint64_t launched = 0, completed = 0, collectives = 0;
  std::vector<std::uint64_t> sends, receives;
  std::uint64_t splits = 0;
  std::vector<std::weak_ptr<Ticket>> outstanding;
  std::vector<std::pair<void*, std::size_t>> windows, registered;
};
using CommPtr = std::shared_ptr<Comm>;

struct Item {  // one call as the user made it
  Call call;
  const void* send;
  void* receive;
  std::size_t send_bytes, receive_bytes;
  cudaStream_t stream;
};

// A launched call, or a group of sends and receives: alive as long as its work is queued.
struct Ticket {
  enum class Phase { waiting, posted, filled };
  struct Part {
    Item item;
    std::uint64_t number;
    Phase phase = Phase::waiting;
  };
  CommPtr comm;
  std::uint64_t order;      // of all calls of this rank
  std::vector<Part> parts;  // one collective, or messages
  Clock::time_point deadline{};
  bool over = false;
  explicit Ticket(CommPtr c) : comm(std::move(c)) {}
  Ticket(const Ticket&) = delete;
  ~Ticket();
};
std::string title(const Ticket& t);

// Queues a call (or the sends and receives of a group) on its stream.
ncclResult_t launch(const CommPtr& c, const std::vector<Item>& items);

// Brings a ticket as far as the other ranks allow. True once `run` can finish it.
bool advance_collective(Ticket& t);
bool advance_messages(Ticket& t);
void run_collective(Ticket& t);
void run_messages(Ticket& t);

// A wrong call: said on stderr, remembered for ncclGetLastError, returned.
ncclResult_t misuse(Comm* c, ncclResult_t result, const std::string& what);
// Sets the error that peers' deaths and aborts cause. `needed`: ranks that a call waits for.
void look_for_lost_peers(Comm& c);
// Does `work` now, or, for a non-blocking communicator, when its state is asked for: what a program
// does before it is told ncclSuccess finds nothing done.
ncclResult_t now_or_later(const CommPtr& c, std::function<ncclResult_t()> work);
// Does what a non-blocking communicator has left to do.
void progress(Comm& c);
// An error unless the communicator can take a call now.
ncclResult_t ready_for_calls(const CommPtr& c);

std::size_t width(std::int32_t type);
// out[i] = reduction over ranks of in[rank][i], rounded to the type after every step, in an order
// that depends on `number` and i but not on the rank that computes it.
void reduce(const Call& call, std::uint64_t number, const std::vector<const char*>& in,
            std::size_t from, std::size_t n, char* out);

}  // namespace emu::nccl

struct ncclComm {
  emu::nccl::CommPtr comm;
};
