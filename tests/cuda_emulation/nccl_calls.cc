// SPDX-License-Identifier: Apache-2.0
// How a call of the emulated NCCL waits for its peers. Each rank announces what it calls, compares
// that with what the others announced under the same number, and hands its data over.
#include <algorithm>
#include <cstring>

#include "tests/cuda_emulation/nccl_comm.h"
#include "tests/cuda_emulation/state.h"

namespace emu::nccl {
namespace {
using Phase = Ticket::Phase;

std::string side(const Call& call, int rank) {
  return "rank " + std::to_string(rank) + " calls " + describe(call);
}

bool same(const Call& a, const Call& b) {
  return a.kind == b.kind && a.type == b.type && a.op == b.op && a.root == b.root &&
         a.count == b.count;
}

void copy(void* to, const void* from, std::size_t n) {
  const Bookkeeping quiet;  // what the stream touches is said once, by run
  if (n > 0) std::memcpy(to, from, n);
}

// ---- collectives ----

void compare(const Ticket& t) {
  const Comm& c = *t.comm;
  const auto& part = t.parts[0];
  for (int r = 0; r < c.size; ++r) {
    const Slot& s = c.world->slot(r);
    if (s.posted >= part.number && !same(s.call, part.item.call))
      raise("collective mismatch at number " + std::to_string(part.number) + ": " +
            side(part.item.call, c.rank) + ", " + side(s.call, r));
  }
}

void fill(Ticket& t) {
  auto& part = t.parts[0];
  if (part.phase == Phase::filled) return;
  part.phase = Phase::filled;
  copy(t.comm->world->region(t.comm->rank), part.item.send, part.item.send_bytes);
  t.comm->world->slot(t.comm->rank).filled = part.number;
}

template <class F>
bool all(const Comm& c, F f) {
  for (int r = 0; r < c.size; ++r)
    if (!f(c.world->slot(r))) return false;
  return true;
}

// The data of all ranks is there: what this rank gets of it.
void collect(const Ticket& t, char* out) {
  const Comm& c = *t.comm;
  const auto& [item, number, phase] = t.parts[0];
  const std::size_t n = item.call.count, bytes = n * width(item.call.type);
  std::vector<const char*> in(c.size);
  for (int r = 0; r < c.size; ++r) in[r] = c.world->region(r);
  switch (item.call.kind) {
    case Kind::all_reduce:
    case Kind::reduce:
      return reduce(item.call, number, in, 0, n, out);
    case Kind::reduce_scatter:
      return reduce(item.call, number, in, c.rank * n, n, out);
    case Kind::broadcast:
      return copy(out, in[item.call.root], bytes);
    case Kind::all_gather:
      for (int r = 0; r < c.size; ++r) copy(out + r * bytes, in[r], bytes);
      return;
    case Kind::all_to_all:
      for (int r = 0; r < c.size; ++r) copy(out + r * bytes, in[r] + c.rank * bytes, bytes);
      return;
    default:
      raise("no collective");
  }
}

// ---- messages ----

struct Ends {
  Channel& channel;
  char* region;
};
Ends ends(const Comm& c, const Item& item) {
  const bool send = item.call.kind == Kind::send;
  const int from = send ? c.rank : item.call.root, to = send ? item.call.root : c.rank;
  return {c.world->channel(from, to), c.world->channel_region(from, to)};
}

void fill(Comm& c, Ticket::Part& part) {
  if (part.item.call.kind != Kind::send || part.phase == Phase::filled) return;
  part.phase = Phase::filled;
  const Ends e = ends(c, part.item);
  copy(e.region, part.item.send, part.item.send_bytes);
  e.channel.filled = part.number;
}

// Both ends of the message have been announced.
bool advance(Ticket& t, Ticket::Part& part) {
  Comm& c = *t.comm;
  const bool send = part.item.call.kind == Kind::send;
  const Ends e = ends(c, part.item);
  if (part.phase == Phase::waiting) {
    if (e.channel.taken + 1 < part.number) return false;
    (send ? e.channel.send : e.channel.receive) = part.item.call;
    (send ? e.channel.sent : e.channel.posted) = part.number;
    part.phase = Phase::posted;
  }
  if (e.channel.sent < part.number || e.channel.posted < part.number) return false;
  const Call &a = e.channel.send, &b = e.channel.receive;
  if (part.number == e.channel.taken + 1 && (a.count != b.count || a.type != b.type)) {
    const int from = send ? c.rank : part.item.call.root, to = send ? part.item.call.root : c.rank;
    raise("message mismatch at number " + std::to_string(part.number) + ": " + side(a, from) +
          " to rank " + std::to_string(to) + ", " + side(b, to) + " from rank " +
          std::to_string(from));
  }
  if (!c.world->external()) return true;  // data moves when either end runs, as late as allowed
  fill(c, part);
  return e.channel.filled >= part.number;
}

// Within one process the sender's data is moved by whoever runs first.
void fill_local(World& w, int from, int to, std::uint64_t number) {
  for (Ticket* t : w.active)
    for (auto& part : t->parts)
      if (t->comm->rank == from && part.item.call.kind == Kind::send && part.item.call.root == to &&
          part.number == number)
        fill(*t->comm, part);
}
}  // namespace

bool advance_collective(Ticket& t) {
  const Comm& c = *t.comm;
  auto& part = t.parts[0];
  Slot& own = c.world->slot(c.rank);
  if (part.phase == Phase::waiting) {
    if (!all(c, [&](const Slot& s) { return s.done + 1 >= part.number; })) return false;
    own.call = part.item.call;
    own.posted = part.number;
    part.phase = Phase::posted;
  }
  compare(t);
  if (!all(c, [&](const Slot& s) { return s.posted >= part.number; })) return false;
  if (!c.world->external()) return true;  // data moves when the first rank runs
  fill(t);
  return all(c, [&](const Slot& s) { return s.filled >= part.number; });
}

bool advance_messages(Ticket& t) {
  bool ready = true;
  for (auto& part : t.parts) ready &= advance(t, part);
  return ready;
}

void run_collective(Ticket& t) {
  Comm& c = *t.comm;
  auto& part = t.parts[0];
  for (int r = 0; r < c.size; ++r) ordered_after(&c.world->slot(r));
  reads(part.item.send, part.item.send_bytes);
  writes(part.item.receive, part.item.receive_bytes);
  const Bookkeeping quiet;
  if (!c.world->external())
    for (Ticket* other : c.world->active)
      if (other->parts[0].number == part.number && other->parts[0].item.call.kind < Kind::send)
        fill(*other);
  if (part.item.receive_bytes > 0) collect(t, static_cast<char*>(part.item.receive));
  c.world->slot(c.rank).done = part.number;
}

void run_messages(Ticket& t) {
  Comm& c = *t.comm;
  for (auto& part : t.parts) {
    const Ends e = ends(c, part.item);
    if (part.item.call.kind == Kind::send) {
      reads(part.item.send, part.item.send_bytes);
      fill(c, part);
      continue;
    }
    ordered_after(&e.channel);
    writes(part.item.receive, part.item.receive_bytes);
    if (!c.world->external()) fill_local(*c.world, part.item.call.root, c.rank, part.number);
    copy(part.item.receive, e.region, part.item.receive_bytes);
    e.channel.taken = part.number;
  }
}

}  // namespace emu::nccl
