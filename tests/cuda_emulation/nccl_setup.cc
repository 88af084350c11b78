// SPDX-License-Identifier: Apache-2.0
// Making, splitting and ending communicators of the emulated NCCL (sections "Communicator Creation
// and Management Functions" and "Fault Tolerance" of its manual).
#include <algorithm>

#include "tests/cuda_emulation/nccl_group.h"
#include "tests/cuda_emulation/state.h"

namespace emu::nccl {
namespace {
thread_local std::string thread_error;  // of calls that have no communicator

bool fail(Comm& c, ncclResult_t result, const std::string& why) {
  thread_error = c.last_error = why;
  c.async = result;
  return true;
}

// Takes the rank's place. Once that is done, setup ends when all ranks have done the same.
bool join(Comm& c, const ncclUniqueId& id) {
  std::string error;
  c.world = World::attach(id, c.size, &error);
  if (!c.world) return !fail(c, ncclSystemError, error);
  if (!c.world->take_rank(c.rank, c.device))
    return !fail(c, ncclInvalidArgument,
                 "two callers want to be rank " + std::to_string(c.rank) + " of one communicator");
  c.sends.resize(c.size);
  c.receives.resize(c.size);
  notify();
  return true;
}

std::string absent(const World& w) {
  std::string text;
  for (int r = 0; r < w.size(); ++r)
    if (w.slot(r).life == Life::absent) text += (text.empty() ? "" : ", ") + std::to_string(r);
  return text;
}

// Setup after join: true when over, well or not.
bool all_here(Comm& c, Clock::time_point deadline) {
  if (c.world->complete()) {
    forget_id(*c.world);
    return true;
  }
  look_for_lost_peers(c);
  if (c.async != ncclSuccess) return true;
  if (Clock::now() < deadline) return false;
  return fail(c, ncclSystemError,
              "rank " + std::to_string(c.rank) + " of " + std::to_string(c.size) + " waited " +
                  std::to_string(timeout().count()) + " ms for the communicator's ranks " +
                  absent(*c.world));
}

bool is_blocking(const ncclConfig_t* config, bool otherwise) {
  return config && config->blocking != NCCL_CONFIG_UNDEF_INT ? config->blocking != 0 : otherwise;
}

std::string config_error(const ncclConfig_t* config) {
  if (!config) return "";
  if (config->magic != 0xcafebeef) return "the config was not made by NCCL_CONFIG_INITIALIZER";
  const int b = config->blocking;
  if (b != NCCL_CONFIG_UNDEF_INT && b != 0 && b != 1) return "blocking must be 0 or 1";
  if (config->minCTAs != NCCL_CONFIG_UNDEF_INT && config->maxCTAs != NCCL_CONFIG_UNDEF_INT &&
      config->minCTAs > config->maxCTAs)
    return "minCTAs is larger than maxCTAs";
  return "";
}

// Ends a setup call: waits, or leaves that to the group or to ncclCommGetAsyncError.
ncclResult_t end_setup(const CommPtr& c) {
  if (!c->blocking) return c->setup ? ncclInProgress : c->async;
  if (in_group()) {
    finish_in_group(c);
    return ncclSuccess;
  }
  return wait_for_setup({c});
}

void leave(Comm& c, Life life) {
  c.destroyed = true;
  c.setup = nullptr;
  c.deferred.clear();
  if (c.world && c.world->slot(c.rank).life == Life::attached) c.world->slot(c.rank).life = life;
  notify();
}
ncclResult_t init(ncclComm_t* out, int ranks, const ncclUniqueId& id, int rank,
                  const ncclConfig_t* config) {
  const Guard g;
  if (!out) return misuse(nullptr, ncclInvalidArgument, "no place for the communicator");
  *out = nullptr;
  if (const int fault = take_fault("ncclCommInitRank")) return ncclResult_t(fault);
  if (ranks < 1 || ranks > kMostRanks || rank < 0 || rank >= ranks)
    return misuse(nullptr, ncclInvalidArgument,
                  "rank " + std::to_string(rank) + " of " + std::to_string(ranks) + " ranks");
  if (const auto e = config_error(config); !e.empty())
    return misuse(nullptr, ncclInvalidArgument, e);
  auto c = std::make_shared<Comm>();
  c->rank = rank;
  c->size = ranks;
  c->device = current_device();
  c->blocking = is_blocking(config, true);
  if (!join(*c, id)) return c->async;
  const auto deadline = Clock::now() + timeout();
  c->setup = [comm = c.get(), deadline] { return all_here(*comm, deadline); };
  *out = new ncclComm{c};
  const auto result = end_setup(c);
  if (result == ncclSuccess || result == ncclInProgress) return result;
  leave(*c, Life::aborted);
  delete *out;
  *out = nullptr;
  return result;
}

// ---- ncclCommSplit ----

struct Split {
  CommPtr parent, child;  // child null: this rank takes no part
  std::uint64_t number;
  int color, key;
  ncclUniqueId id{};  // the group that this rank leads, if it does, meets by this one
  Clock::time_point deadline = Clock::now() + timeout();
  bool posted = false, exchanged = false;
};

// Ranks of this color by key, then by old rank.
std::vector<int> members(const Split& s) {
  const World& w = *s.parent->world;
  std::vector<int> ranks;
  for (int r = 0; r < w.size(); ++r)
    if (w.slot(r).color == s.color) ranks.push_back(r);
  std::stable_sort(ranks.begin(), ranks.end(),
                   [&](int a, int b) { return w.slot(a).key < w.slot(b).key; });
  return ranks;
}

void found_child(Split& s) {
  const auto ranks = members(s);
  const auto own = std::find(ranks.begin(), ranks.end(), s.parent->rank);
  s.child->rank = int(own - ranks.begin());
  s.child->size = int(ranks.size());
  if (ranks[0] != s.parent->rank) discard_id(s.id);
  join(*s.child, s.parent->world->slot(ranks[0]).split_id);
}

bool everyone(const World& w, std::atomic<std::uint64_t> Slot::*counter, std::uint64_t n) {
  for (int r = 0; r < w.size(); ++r)
    if (w.slot(r).*counter < n) return false;
  return true;
}

// Every rank tells its color and key to all; the new groups follow from that. True when over.
bool exchange(Split& s) {
  if (s.exchanged) return true;
  const World& w = *s.parent->world;
  Slot& own = w.slot(s.parent->rank);
  if (!s.posted && everyone(w, &Slot::splits_read, s.number - 1)) {
    own.color = s.color;
    own.key = s.key;
    own.split_id = s.id;
    own.splits_posted = s.number;
    s.posted = true;
  }
  if (everyone(w, &Slot::splits_posted, s.number)) {
    if (s.child) found_child(s);
    own.splits_read = s.number;
    notify();
    return s.exchanged = true;
  }
  look_for_lost_peers(*s.parent);
  const bool late = Clock::now() > s.deadline;
  if (!late && s.parent->async == ncclSuccess) return false;
  if (late) fail(*s.parent, ncclSystemError, "not all ranks called ncclCommSplit in time");
  if (s.child) s.child->async = s.parent->async, s.child->last_error = s.parent->last_error;
  return s.exchanged = true;
}

ncclResult_t split(const CommPtr& parent, int color, int key, ncclComm_t* out,
                   const ncclConfig_t* config) {
  if (!out || (color < 0 && color != NCCL_SPLIT_NOCOLOR))
    return misuse(parent.get(), ncclInvalidArgument, "ncclCommSplit: no such color");
  *out = nullptr;
  if (const auto error = ready_for_calls(parent)) return error;
  if (const auto e = config_error(config); !e.empty())
    return misuse(parent.get(), ncclInvalidArgument, e);
  auto s = std::make_shared<Split>();
  s->parent = parent;
  s->number = ++parent->splits;
  s->color = color;
  s->key = key;
  const bool blocking = is_blocking(config, parent->blocking);
  if (color != NCCL_SPLIT_NOCOLOR) {
    if (const auto error = create_id(&s->id)) return error;
    auto child = std::make_shared<Comm>();
    s->child = child;
    child->device = parent->device;
    child->blocking = blocking;
    child->setup = [s, c = child.get()] {
      if (!exchange(*s)) return false;
      return c->async != ncclSuccess || all_here(*c, s->deadline);
    };
    *out = new ncclComm{child};
  }
  if (!blocking) {
    parent->setup = [s] { return exchange(*s); };
    return ncclInProgress;
  }
  if (s->child) return end_setup(s->child);
  wait_until([&] { return exchange(*s); }, true);
  return parent->async;
}

// ---- the end ----

bool idle(const Comm& c) {
  return std::all_of(c.outstanding.begin(), c.outstanding.end(), [](const auto& weak) {
    const auto t = weak.lock();
    return !t || t->over;
  });
}

// Sections "ncclCommFinalize" and "ncclCommDestroy": local work is over afterwards. A non-blocking
// communicator is asked for its state meanwhile.
ncclResult_t finalize(Comm& c, bool blocking) {
  c.finalized = true;
  if (!blocking && c.async == ncclSuccess) {
    c.setup = [&c] { return idle(c); };
    return ncclInProgress;
  }
  try {
    wait_until([&] { return idle(c) || c.async != ncclSuccess; }, c.world && c.world->external());
  } catch (const Error& e) {
    return misuse(&c, ncclInternalError, e.what);
  }
  return c.async;
}

}  // namespace

ncclResult_t misuse(Comm* c, ncclResult_t result, const std::string& what) {
  (c ? c->last_error : thread_error) = what;
  report("NCCL: " + what);
  return result;
}

ncclResult_t now_or_later(const CommPtr& c, std::function<ncclResult_t()> work) {
  if (c->blocking) return work();
  c->deferred.push_back(std::move(work));
  c->polls_left = 1 + int(c->launched % 2);
  return ncclInProgress;
}

void progress(Comm& c) {
  if (c.finalized && c.setup) poll(c.setup);  // nobody else may be waiting for the device
  if (c.setup && c.setup()) c.setup = nullptr;
  if (c.setup || c.deferred.empty() || --c.polls_left >= 0) return;
  const auto work = std::move(c.deferred.front());
  c.deferred.pop_front();
  if (const auto error = work(); error != ncclSuccess && c.async == ncclSuccess) c.async = error;
}

ncclResult_t ready_for_calls(const CommPtr& c) {
  if (c->destroyed || c->finalized)
    return misuse(c.get(), ncclInvalidArgument, "the communicator was finalized or destroyed");
  if (c->setup || !c->deferred.empty())
    return misuse(c.get(), ncclInvalidArgument,
                  "the communicator is used before its previous call has succeeded: ask "
                  "ncclCommGetAsyncError until it is ncclSuccess");
  return c->async;
}

ncclResult_t wait_for_setup(const std::vector<CommPtr>& comms) {
  ncclResult_t result = ncclSuccess;
  for (const auto& c : comms) {
    wait_until([&] { return !c->setup || (c->setup() && (c->setup = nullptr, true)); }, true);
    if (result == ncclSuccess) result = c->async;
  }
  return result;
}
}  // namespace emu::nccl

using emu::nccl::misuse;

extern "C" {
ncclResult_t ncclGetVersion(int* version) {
  if (!version) return ncclInvalidArgument;
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return id ? emu::nccl::create_id(id) : ncclInvalidArgument;
}
ncclResult_t ncclCommInitRank(ncclComm_t* c, int n, ncclUniqueId id, int rank) {
  return emu::nccl::init(c, n, id, rank, nullptr);
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* c, int n, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return emu::nccl::init(c, n, id, rank, config);
}
ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t* out,
                           ncclConfig_t* config) {
  const emu::Guard g;
  if (!c) return misuse(nullptr, ncclInvalidArgument, "ncclCommSplit without a communicator");
  return emu::nccl::split(c->comm, color, key, out, config);
}
ncclResult_t ncclCommFinalize(ncclComm_t c) {
  const emu::Guard g;
  if (!c) return misuse(nullptr, ncclInvalidArgument, "ncclCommFinalize without a communicator");
  auto& comm = *c->comm;
  if (const auto error = ready_for_calls(c->comm)) return error;
  return emu::nccl::finalize(comm, comm.blocking);
}
ncclResult_t ncclCommDestroy(ncclComm_t c) {
  const emu::Guard g;
  if (!c) return ncclSuccess;
  const auto result = emu::nccl::finalize(*c->comm, true);
  emu::nccl::leave(*c->comm, emu::nccl::Life::left);
  delete c;
  return result;
}
ncclResult_t ncclCommAbort(ncclComm_t c) {
  const emu::Guard g;
  if (!c) return ncclSuccess;
  c->comm->aborted = true;
  emu::nccl::leave(*c->comm, emu::nccl::Life::aborted);
  delete c;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t* error) {
  const emu::Guard g;
  if (!c || !error) return misuse(nullptr, ncclInvalidArgument, "no communicator, or no result");
  auto& comm = *c->comm;
  try {
    emu::nccl::progress(comm);
  } catch (const emu::Error& e) {
    comm.async = misuse(&comm, ncclInternalError, e.what);
  }
  const bool busy = comm.setup || !comm.deferred.empty();
  if (!busy) look_for_lost_peers(comm);
  *error = comm.async != ncclSuccess ? comm.async : busy ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t c, int* n) {
  if (!c || !n) return ncclInvalidArgument;
  *n = c->comm->size;
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(const ncclComm_t c, int* device) {
  if (!c || !device) return ncclInvalidArgument;
  *device = c->comm->device;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t c, int* rank) {
  if (!c || !rank) return ncclInvalidArgument;
  *rank = c->comm->rank;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t r) {
  switch (r) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}
const char* ncclGetLastError(ncclComm_t c) {
  return c ? c->comm->last_error.c_str() : emu::nccl::thread_error.c_str();
}
}
