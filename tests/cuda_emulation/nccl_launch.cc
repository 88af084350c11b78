// SPDX-License-Identifier: Apache-2.0
// From a call of the emulated NCCL to work on a stream, and what goes wrong while it waits.
#include <algorithm>

#include "tests/cuda_emulation/nccl_comm.h"
#include "tests/cuda_emulation/state.h"

namespace emu::nccl {
namespace {
bool message(const Ticket& t) { return t.parts[0].item.call.kind >= Kind::send; }

// The ranks that an unfinished call waits for.
std::vector<int> missing(const Ticket& t) {
  const Comm& c = *t.comm;
  std::vector<int> ranks;
  if (!message(t)) {
    const auto number = t.parts[0].number;
    const bool waiting = t.parts[0].phase == Ticket::Phase::waiting;
    for (const bool announced : {false, true}) {  // the data's turn comes once all have announced
      for (int r = 0; r < c.size && (ranks.empty() || !announced); ++r) {
        const Slot& s = c.world->slot(r);
        if (waiting ? s.done + 1 < number : (announced ? s.filled : s.posted) < number)
          ranks.push_back(r);
      }
      if (!ranks.empty()) return ranks;
    }
    return ranks;
  }
  for (const auto& part : t.parts) {
    const int peer = part.item.call.root;
    const bool send = part.item.call.kind == Kind::send;
    const Channel& ch = send ? c.world->channel(c.rank, peer) : c.world->channel(peer, c.rank);
    const bool here = send ? ch.posted >= part.number : ch.filled >= part.number;
    if (!here && std::find(ranks.begin(), ranks.end(), peer) == ranks.end()) ranks.push_back(peer);
  }
  return ranks;
}

std::string list(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    text += (i ? ", " : " ") + std::to_string(ranks[i]);
  return text;
}

[[noreturn]] void give_up(const Ticket& t) {
  const Comm& c = *t.comm;
  std::string text =
      title(t) + " waited " + std::to_string(timeout().count()) + " ms for " + list(missing(t));
  for (int r : missing(t)) {
    const Slot& s = c.world->slot(r);
    if (message(t) || s.posted == 0) continue;
    text += "; rank " + std::to_string(r) + " has announced " + std::to_string(s.posted) +
            " collectives, the last " + describe(s.call);
  }
  if (!c.last_error.empty()) text += "; " + c.last_error;
  raise(text);
}

void arrive(Ticket& t) {
  Comm& c = *t.comm;
  if (c.destroyed && !c.aborted)
    raise(title(t) + " runs on a communicator that was destroyed (a graph launched too late?)");
  if (c.aborted) return;
  if (t.order != c.completed + 1)
    raise(title(t) +
          " is not ordered after the communicator's call before it: a communicator used "
          "from two streams needs an event between them");
  t.deadline = Clock::now() + timeout();
  c.world->active.push_back(&t);
  orders_before(&c.world->slot(c.rank));
  for (const auto& part : t.parts)
    if (part.item.call.kind == Kind::send)
      orders_before(&c.world->channel(c.rank, part.item.call.root));
}

bool ready(Ticket& t) {
  Comm& c = *t.comm;
  if (c.aborted) return true;
  // A look at one call must see how far the others of this process have come meanwhile.
  bool ready = false;
  for (int round = 0; round < 2; ++round)
    for (Ticket* other : c.world->active) {
      const bool r = other->comm->aborted ||
                     (message(*other) ? advance_messages(*other) : advance_collective(*other));
      if (other == &t) ready = r;
    }
  if (ready) return true;
  look_for_lost_peers(c);
  if (Clock::now() > t.deadline) give_up(t);
  return false;
}

void run(Ticket& t) {
  Comm& c = *t.comm;
  if (!c.aborted) message(t) ? run_messages(t) : run_collective(t);
}

void finish(Ticket& t) {
  t.over = true;
  ++t.comm->completed;
  if (t.comm->world) t.comm->world->active.remove(&t);
}

std::shared_ptr<Ticket> number(const CommPtr& c, const std::vector<Item>& items) {
  if (c->destroyed && !c->aborted)
    raise("a graph with calls of a destroyed communicator is launched");
  auto t = std::make_shared<Ticket>(c);
  t->order = ++c->launched;
  for (const Item& item : items) {
    std::uint64_t n = 0;
    if (item.call.kind == Kind::send)
      n = ++c->sends[item.call.root];
    else if (item.call.kind == Kind::receive)
      n = ++c->receives[item.call.root];
    else
      n = ++c->collectives;
    t->parts.push_back({item, n, Ticket::Phase::waiting});
  }
  std::erase_if(c->outstanding, [](const auto& w) { return w.expired(); });
  c->outstanding.push_back(t);
  return t;
}
}  // namespace

Ticket::~Ticket() {
  if (over) return;
  if (comm->world) comm->world->active.remove(this);
  if (comm->async != ncclSuccess || comm->aborted) return;
  comm->async = ncclInternalError;
  comm->last_error = "work of this communicator was dropped before it ran";
}

std::string title(const Ticket& t) {
  const Comm& c = *t.comm;
  std::string text;
  if (!message(t)) {
    text = describe(t.parts[0].item.call) + ", number " + std::to_string(t.parts[0].number);
  } else {
    for (const auto& part : t.parts)
      text += (text.empty() ? "" : " + ") + describe(part.item.call) +
              (part.item.call.kind == Kind::send ? " to rank " : " from rank ") +
              std::to_string(part.item.call.root) + ", number " + std::to_string(part.number);
  }
  return text + " (rank " + std::to_string(c.rank) + " of " + std::to_string(c.size) + ")";
}

ncclResult_t launch(const CommPtr& c, const std::vector<Item>& items) {
  const auto error = submit(items[0].stream, [c, items] {
    auto t = number(c, items);
    Work work;
    work.what = title(*t);
    work.arrive = [t] { arrive(*t); };
    work.ready = [t] { return ready(*t); };
    work.run = [t] { run(*t); };
    work.after = [t] { finish(*t); };
    // Where the runtime cannot tell a deadlock from host threads, the call's own deadline does.
    work.external = c->world->external() || state().settings.host_threads == 0;
    return work;
  });
  return error == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

void look_for_lost_peers(Comm& c) {
  if (!c.world || c.async != ncclSuccess) return;
  const auto now = Clock::now();
  for (int r = 0; r < c.size; ++r) {
    if (r == c.rank) continue;
    const std::string why = c.world->lost(r, now);
    if (why.empty()) continue;
    c.async = ncclRemoteError;
    c.last_error = why;
    return;
  }
}

}  // namespace emu::nccl
