// SPDX-License-Identifier: Apache-2.0
// The part of NCCL that the worker uses, for ranks that are threads of one process. A collective
// runs once every rank's stream has reached it; matching follows the issue order per communicator.
#include <nccl.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/cuda_emulation/runtime.h"

namespace {
enum class Kind { all_reduce, all_gather, reduce_scatter, broadcast };
const char* const kNames[] = {"ncclAllReduce", "ncclAllGather", "ncclReduceScatter",
                              "ncclBroadcast"};
struct Operands {
  const void* send;
  void* recv;
};
struct Op {
  Kind kind;
  size_t count;
  ncclDataType_t type;
  int root;
  int arrived = 0;
  bool done = false;
  std::vector<Operands> rank;
};
struct Message {
  const void* send = nullptr;
  void* recv = nullptr;
  size_t bytes = 0;
  bool sent = false, posted = false, copied = false;
};
struct World {
  int size;
  std::map<std::uint64_t, Op> ops;
  std::map<std::pair<int, int>, std::map<std::uint64_t, Message>>
      channel;  // (from, to) -> sequence -> message
};
std::mutex mu;
std::map<std::string, std::shared_ptr<World>> worlds;
}  // namespace

struct ncclComm {
  std::shared_ptr<World> world;
  int rank;
  std::uint64_t seq = 0;
  std::map<int, std::uint64_t> sends, recvs;
};

namespace {
size_t width(ncclDataType_t t) {
  switch (t) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}
template <class T>
void sum(const Op& op, size_t from, size_t n, void* out) {
  for (size_t i = 0; i < n; ++i) {
    double s = 0;  // NCCL's order differs by algorithm: callers must tolerate reassociation
    for (auto& r : op.rank) s += double(static_cast<const T*>(r.send)[from + i]);
    static_cast<T*>(out)[i] = T(float(s));
  }
}
void reduce(const Op& op, size_t from, size_t n, void* out) {
  switch (op.type) {
    case ncclFloat32:
      return sum<float>(op, from, n, out);
    case ncclBfloat16:
      return sum<__nv_bfloat16>(op, from, n, out);
    case ncclFloat16:
      return sum<__half>(op, from, n, out);
    case ncclInt32:
      return sum<int>(op, from, n, out);
    default:
      emu::raise("this reduction type is not emulated");
  }
}
void execute(const Op& op) {
  const size_t n = op.count, w = width(op.type), ranks = op.rank.size();
  for (auto& r : op.rank) {
    emu::reads(r.send, n * w * (op.kind == Kind::reduce_scatter ? ranks : 1));
    emu::writes(r.recv, n * w * (op.kind == Kind::all_gather ? ranks : 1));
  }
  std::vector<std::vector<char>> out(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    switch (op.kind) {
      case Kind::all_reduce:
        out[r].resize(n * w);
        reduce(op, 0, n, out[r].data());
        break;
      case Kind::reduce_scatter:
        out[r].resize(n * w);
        reduce(op, r * n, n, out[r].data());
        break;
      case Kind::all_gather:
        out[r].resize(n * w * ranks);
        for (size_t q = 0; q < ranks; ++q)
          std::memcpy(out[r].data() + q * n * w, op.rank[q].send, n * w);
        break;
      case Kind::broadcast:
        out[r].resize(n * w);
        std::memcpy(out[r].data(), op.rank[op.root].send, n * w);
    }
  }
  for (size_t r = 0; r < ranks; ++r) std::memcpy(op.rank[r].recv, out[r].data(), out[r].size());
}

// Reads and writes the ranks' buffers as the stream that got here first; the others find it done.
void move(const Op& shared) {
  Op op;
  {
    emu::Bookkeeping b;
    op = shared;
  }
  if (!op.done) execute(op);
}

ncclResult_t collective(Kind kind, const void* send, void* recv, size_t count, ncclDataType_t type,
                        int root, ncclComm_t c, cudaStream_t s) {
  emu::submit(s, [=] {
    const std::uint64_t seq = c->seq++;
    auto w = c->world;
    auto name = std::string(kNames[int(kind)]) + "#" + std::to_string(seq) + " rank " +
                std::to_string(c->rank);
    return emu::Work{
        name,
        [=] {
          auto [it, fresh] = w->ops.try_emplace(
              seq, Op{kind, count, type, root, 0, false, std::vector<Operands>(w->size)});
          Op& op = it->second;
          if (op.kind != kind || op.count != count || op.type != type || op.root != root)
            emu::raise("collective mismatch: " + name + " meets " + kNames[int(op.kind)] + " of " +
                       std::to_string(op.count) + " elements, this rank has " +
                       std::to_string(count));
          op.rank[c->rank] = {send, recv};
          ++op.arrived;
          emu::orders_before(&op);
        },
        [=] { return w->ops[seq].arrived == w->size; },
        [w = w.get(), seq] {
          Op* op;
          {
            emu::Bookkeeping b;
            op = &w->ops[seq];
          }
          emu::ordered_after(op);
          move(*op);
          emu::orders_before(op);
        },
        [=] { w->ops[seq].done = true; }};
  });
  return ncclSuccess;
}

struct P2p {
  bool send;
  void* buf;
  size_t bytes;
  int peer;
  ncclComm_t c;
  cudaStream_t s;
};
thread_local int depth = 0;
thread_local std::vector<P2p> pending;

void flush() {
  if (pending.empty()) return;
  auto items = std::move(pending);
  pending.clear();
  emu::submit(items[0].s, [items] {
    std::vector<std::pair<P2p, std::uint64_t>> seqs;
    std::string name = "ncclGroup(";
    for (auto& i : items) {
      seqs.emplace_back(i, i.send ? i.c->sends[i.peer]++ : i.c->recvs[i.peer]++);
      name += (i.send ? " send>" : " recv<") + std::to_string(i.peer);
    }
    name += " ) rank " + std::to_string(items[0].c->rank);
    auto message = [](const std::pair<P2p, std::uint64_t>& p) -> Message& {
      auto& c = *p.first.c;
      return c.world->channel[p.first.send ? std::pair(c.rank, p.first.peer)
                                           : std::pair(p.first.peer, c.rank)][p.second];
    };
    return emu::Work{name,
                     [=] {
                       for (auto& p : seqs) {
                         Message& m = message(p);
                         if ((m.sent || m.posted) && m.bytes != p.first.bytes)
                           emu::raise("send and receive sizes differ: " + name);
                         m.bytes = p.first.bytes;
                         if (p.first.send) {
                           m.send = p.first.buf;
                           m.sent = true;
                         } else {
                           m.recv = p.first.buf;
                           m.posted = true;
                         }
                         emu::orders_before(&m);
                       }
                     },
                     [=] {
                       for (auto& p : seqs) {
                         Message& m = message(p);
                         if (!m.sent || !m.posted) return false;
                       }
                       return true;
                     },
                     [=] {
                       for (auto& p : seqs) {
                         Message& m = message(p);
                         emu::ordered_after(&m);
                         if (!m.copied) {
                           emu::reads(m.send, m.bytes);
                           emu::writes(m.recv, m.bytes);
                           emu::Bookkeeping b;
                           std::memcpy(m.recv, m.send, m.bytes);
                         }
                         m.copied = true;
                         emu::orders_before(&m);
                       }
                     },
                     {}};
  });
}
ncclResult_t p2p(bool send, void* b, size_t n, ncclDataType_t t, int peer, ncclComm_t c,
                 cudaStream_t s) {
  pending.push_back({send, b, n * width(t), peer, c, s});
  if (!depth) flush();
  return ncclSuccess;
}
}  // namespace

extern "C" {
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int next = 0;
  std::lock_guard g(mu);
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "emulated-%d", next++);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRank(ncclComm_t* c, int n, ncclUniqueId id, int rank) {
  std::lock_guard g(mu);
  auto& w = worlds[id.internal];
  if (!w) w = std::make_shared<World>(World{n, {}, {}});
  if (w->size != n || rank < 0 || rank >= n) return ncclInvalidArgument;
  *c = new ncclComm{w, rank, 0, {}, {}};
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* c, int n, ncclUniqueId id, int rank,
                                    ncclConfig_t*) {
  return ncclCommInitRank(c, n, id, rank);
}
ncclResult_t ncclCommDestroy(ncclComm_t c) {
  delete c;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t r) {
  return r == ncclSuccess ? "no error" : "emulated NCCL error";
}
ncclResult_t ncclAllReduce(const void* a, void* b, size_t n, ncclDataType_t t, ncclRedOp_t op,
                           ncclComm_t c, cudaStream_t s) {
  return op == ncclSum ? collective(Kind::all_reduce, a, b, n, t, 0, c, s) : ncclInvalidArgument;
}
ncclResult_t ncclAllGather(const void* a, void* b, size_t n, ncclDataType_t t, ncclComm_t c,
                           cudaStream_t s) {
  return collective(Kind::all_gather, a, b, n, t, 0, c, s);
}
ncclResult_t ncclReduceScatter(const void* a, void* b, size_t n, ncclDataType_t t, ncclRedOp_t op,
                               ncclComm_t c, cudaStream_t s) {
  return op == ncclSum ? collective(Kind::reduce_scatter, a, b, n, t, 0, c, s)
                       : ncclInvalidArgument;
}
ncclResult_t ncclBroadcast(const void* a, void* b, size_t n, ncclDataType_t t, int root,
                           ncclComm_t c, cudaStream_t s) {
  return collective(Kind::broadcast, a, b, n, t, root, c, s);
}
ncclResult_t ncclSend(const void* b, size_t n, ncclDataType_t t, int peer, ncclComm_t c,
                      cudaStream_t s) {
  return p2p(true, const_cast<void*>(b), n, t, peer, c, s);
}
ncclResult_t ncclRecv(void* b, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s) {
  return p2p(false, b, n, t, peer, c, s);
}
ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (!--depth) flush();
  return ncclSuccess;
}
}
