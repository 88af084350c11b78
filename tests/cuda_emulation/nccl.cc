// SPDX-License-Identifier: Apache-2.0
// The calls of the emulated NCCL that move data, and groups of them. Prototypes are those of NCCL
// 2.28; sections of its manual are named where a rule comes from there.
#include <algorithm>
#include <utility>

#include "tests/cuda_emulation/memory.h"
#include "tests/cuda_emulation/nccl_comm.h"
#include "tests/cuda_emulation/nccl_group.h"
#include "tests/cuda_emulation/state.h"

namespace emu::nccl {
namespace {
struct Grouped {
  CommPtr comm;
  Item item;
};
struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Grouped> calls;
  std::vector<CommPtr> setups;  // communicators whose setup the group ends
};
thread_local Group group;

// Section "Group Calls": sends and receives of a group progress together, its collectives one
// after another.
ncclResult_t launch_all(const CommPtr& c, const std::vector<Item>& items) {
  std::vector<Item> messages;
  for (const Item& item : items)
    if (item.call.kind >= Kind::send) messages.push_back(item);
  ncclResult_t result = messages.empty() ? ncclSuccess : launch(c, messages);
  for (const Item& item : items)
    if (item.call.kind < Kind::send && result == ncclSuccess) result = launch(c, {item});
  return result;
}

ncclResult_t launch_group(std::vector<Grouped> calls) {
  ncclResult_t result = ncclSuccess;
  while (!calls.empty()) {
    const CommPtr c = calls[0].comm;
    std::vector<Item> items;
    for (const auto& call : calls)
      if (call.comm == c) items.push_back(call.item);
    std::erase_if(calls, [&](const auto& call) { return call.comm == c; });
    for (const Item& item : items)
      if (item.stream != items[0].stream)
        return misuse(c.get(), ncclInvalidUsage,
                      "a group with one communicator on several streams is not emulated");
    const auto r = now_or_later(c, [c, items] { return launch_all(c, items); });
    if (result == ncclSuccess || result == ncclInProgress) result = r == ncclSuccess ? result : r;
  }
  return result;
}

std::string buffer_error(const Comm& c, const void* p, std::size_t bytes) {
  if (bytes == 0) return "";
  const Place place = locate(p, bytes);
  if (!place.wrong.empty()) return place.wrong;
  if (place.kind != emu::Kind::device) return "is not device memory";
  if (place.device != c.device)
    return "is memory of device " + std::to_string(place.device) +
           ", the communicator's is device " + std::to_string(c.device);
  return "";
}

// Sections on each collective, "In-place operation will happen if": the one overlap allowed.
bool overlap_allowed(const Comm& c, const Item& i) {
  const auto* s = static_cast<const char*>(i.send);
  const auto* r = static_cast<const char*>(i.receive);
  const std::size_t block = i.call.count * width(i.call.type);
  if (i.send_bytes == 0 || i.receive_bytes == 0) return true;
  if (s + i.send_bytes <= r || r + i.receive_bytes <= s) return true;
  switch (i.call.kind) {
    case Kind::all_gather:
      return s == r + c.rank * block;
    case Kind::reduce_scatter:
      return r == s + c.rank * block;
    case Kind::all_to_all:
      return false;
    default:
      return s == r;
  }
}

std::string wrong_with(const Comm& c, const Item& item) {
  if (item.call.type < 0 || item.call.type >= ncclNumTypes) return "its data type is none";
  if (item.call.op > ncclMin) return "this reduction is not emulated";
  const bool peer = item.call.kind >= Kind::send;
  if (item.call.root < 0 || item.call.root >= c.size)
    return (peer ? "its peer is " : "its root is ") + std::to_string(item.call.root) + " of " +
           std::to_string(c.size) + " ranks";
  if (std::max(item.send_bytes, item.receive_bytes) > (peer ? kChannelRegion : kRegion))
    return "it is larger than the emulation can move";
  if (auto e = buffer_error(c, item.send, item.send_bytes); !e.empty())
    return "its send buffer " + e;
  if (auto e = buffer_error(c, item.receive, item.receive_bytes); !e.empty())
    return "its receive buffer " + e;
  if (!overlap_allowed(c, item)) return "its buffers overlap in a way that is not in place";
  if (item.stream->device != c.device)
    return "its stream is of device " + std::to_string(item.stream->device) +
           ", the communicator's is device " + std::to_string(c.device);
  return "";
}

// A swap_next makes it wait here for the device's next call.
ncclResult_t launch_alone(const CommPtr& c, const Item& item) {
  auto& postponed = state().postponed[c->device];
  if (swapped(name_of(item.call.kind), describe(item.call))) {
    postponed = [c, item] { return launch(c, {item}); };
    return ncclSuccess;
  }
  return now_or_later(c, [c, item, after = std::exchange(postponed, nullptr)] {
    const ncclResult_t result = launch(c, {item});
    const ncclResult_t second = after ? ncclResult_t(after()) : ncclSuccess;
    return result == ncclSuccess ? second : result;
  });
}

ncclResult_t call(ncclComm_t comm, const Item& item) {
  const Guard g;
  if (!comm) return misuse(nullptr, ncclInvalidArgument, "a call without a communicator");
  const CommPtr c = comm->comm;
  const char* const name = name_of(item.call.kind);
  count(name);
  ncclResult_t result = ncclResult_t(take_fault(name));
  if (result == ncclSuccess) result = ready_for_calls(c);
  if (result == ncclSuccess && need(item.stream) != cudaSuccess) result = ncclInvalidUsage;
  if (result == ncclSuccess)
    if (const auto wrong = wrong_with(*c, item); !wrong.empty())
      result = misuse(c.get(), ncclInvalidArgument,
                      std::string(name) + " on rank " + std::to_string(c->rank) + ": " + wrong);
  if (result == ncclSuccess && dropped(name, describe(item.call))) return ncclSuccess;
  if (group.depth == 0) return result == ncclSuccess ? launch_alone(c, item) : result;
  if (result != ncclSuccess) group.error = result;
  group.calls.push_back({c, item});
  return result;
}

Item collective(Kind kind, const void* send, void* receive, std::size_t count, ncclDataType_t type,
                int op, int root, cudaStream_t stream, std::size_t send_blocks,
                std::size_t receive_blocks) {
  const bool known = type >= 0 && type < ncclNumTypes;
  const std::size_t block = known ? count * width(type) : 0;
  return {{kind, type, op, root, count}, send,  receive, send_blocks * block,
          receive_blocks * block,        stream};
}
std::size_t ranks(ncclComm_t c) { return c ? std::size_t(c->comm->size) : 0; }
int own(ncclComm_t c) { return c ? c->comm->rank : -1; }
}  // namespace

bool in_group() { return group.depth > 0; }
void finish_in_group(const CommPtr& c) { group.setups.push_back(c); }
}  // namespace emu::nccl

using emu::nccl::call;
using emu::nccl::collective;
using emu::nccl::Kind;
using emu::nccl::own;
using emu::nccl::ranks;

extern "C" {
ncclResult_t ncclAllReduce(const void* a, void* b, size_t n, ncclDataType_t t, ncclRedOp_t op,
                           ncclComm_t c, cudaStream_t s) {
  return call(c, collective(Kind::all_reduce, a, b, n, t, op, 0, s, 1, 1));
}
ncclResult_t ncclReduce(const void* a, void* b, size_t n, ncclDataType_t t, ncclRedOp_t op,
                        int root, ncclComm_t c, cudaStream_t s) {
  return call(c, collective(Kind::reduce, a, b, n, t, op, root, s, 1, own(c) == root));
}
ncclResult_t ncclBroadcast(const void* a, void* b, size_t n, ncclDataType_t t, int root,
                           ncclComm_t c, cudaStream_t s) {
  return call(c, collective(Kind::broadcast, a, b, n, t, -1, root, s, own(c) == root, 1));
}
ncclResult_t ncclAllGather(const void* a, void* b, size_t n, ncclDataType_t t, ncclComm_t c,
                           cudaStream_t s) {
  return call(c, collective(Kind::all_gather, a, b, n, t, -1, 0, s, 1, ranks(c)));
}
ncclResult_t ncclReduceScatter(const void* a, void* b, size_t n, ncclDataType_t t, ncclRedOp_t op,
                               ncclComm_t c, cudaStream_t s) {
  return call(c, collective(Kind::reduce_scatter, a, b, n, t, op, 0, s, ranks(c), 1));
}
ncclResult_t ncclAlltoAll(const void* a, void* b, size_t n, ncclDataType_t t, ncclComm_t c,
                          cudaStream_t s) {
  return call(c, collective(Kind::all_to_all, a, b, n, t, -1, 0, s, ranks(c), ranks(c)));
}
ncclResult_t ncclSend(const void* b, size_t n, ncclDataType_t t, int peer, ncclComm_t c,
                      cudaStream_t s) {
  return call(c, collective(Kind::send, b, nullptr, n, t, -1, peer, s, 1, 0));
}
ncclResult_t ncclRecv(void* b, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s) {
  return call(c, collective(Kind::receive, nullptr, b, n, t, -1, peer, s, 0, 1));
}

ncclResult_t ncclGroupStart() {
  ++emu::nccl::group.depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  const emu::Guard g;
  auto& group = emu::nccl::group;
  if (group.depth == 0)
    return emu::nccl::misuse(nullptr, ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group.depth > 0) return ncclSuccess;
  const auto ended = std::exchange(group, {});
  if (ended.error != ncclSuccess) return ended.error;
  const auto set_up = emu::nccl::wait_for_setup(ended.setups);
  if (set_up != ncclSuccess && set_up != ncclInProgress) return set_up;
  const auto launched = emu::nccl::launch_group(ended.calls);
  return launched == ncclSuccess ? set_up : launched;
}
}
