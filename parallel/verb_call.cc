// SPDX-License-Identifier: Apache-2.0
#include "parallel/verb_call.h"

#include <numeric>

#include "base/check.h"

namespace cohort {
namespace {

int64_t sum(std::span<const int64_t> bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

}  // namespace

const char* name(GroupKind kind) {
  switch (kind) {
    case GroupKind::tp:
      return "tp";
    case GroupKind::pp:
      return "pp";
    case GroupKind::dp:
      return "dp";
    case GroupKind::tokens:
      return "tokens";
  }
  return "?";
}

const char* name(VerbKind kind) {
  switch (kind) {
    case VerbKind::all_reduce:
      return "all_reduce";
    case VerbKind::add_up:
      return "add_up";
    case VerbKind::all_gather:
      return "all_gather";
    case VerbKind::all_to_all:
      return "all_to_all";
    case VerbKind::send:
      return "send";
    case VerbKind::recv:
      return "recv";
  }
  return "?";
}

Status perform(const VerbCall& call) {
  Communicator& c = *call.communicator;
  c.set_mark(call.mark);
  switch (call.kind) {
    case VerbKind::all_reduce:
      if (call.count == 0) return {};
      return c.all_reduce(*call.plan, static_cast<float*>(call.in), static_cast<float*>(call.out),
                          call.count);
    case VerbKind::add_up:
      return call.count == 0 ? Status() : c.add_up(call.in, call.out, call.count, call.dtype);
    case VerbKind::all_gather:
      return sum(call.to) == 0 ? Status() : c.all_gather(call.in, call.out, call.to);
    case VerbKind::all_to_all:
      // Other pairs of ranks may have something for each other even if this one has nothing.
      return c.all_to_all(call.in, call.to, call.out, call.from);
    case VerbKind::send:
      return call.count == 0 ? Status() : c.send(call.in, call.count, call.peer);
    case VerbKind::recv:
      return call.count == 0 ? Status() : c.recv(call.out, call.count, call.peer);
  }
  return internal_error("there is no such verb");
}

int64_t bytes_sent(const VerbCall& call) {
  const int64_t others = call.communicator->size() - 1;
  const size_t rank = size_t(call.communicator->rank());
  switch (call.kind) {
    case VerbKind::all_reduce:
      return others * call.count * int64_t(call.plan->pieces(int(rank)).size() * sizeof(float));
    case VerbKind::add_up:
      return others * bytes_of(call.dtype, call.count);
    case VerbKind::all_gather:
      return others * call.to[rank];
    case VerbKind::all_to_all:
      return sum(call.to) - call.to[rank];
    case VerbKind::send:
      return call.count;
    case VerbKind::recv:
      return 0;
  }
  return 0;
}

}  // namespace cohort
