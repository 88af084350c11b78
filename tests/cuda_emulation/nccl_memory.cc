// SPDX-License-Identifier: Apache-2.0
// Memory and windows of the emulated NCCL (section "User Buffer Registration" of its manual).
#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>

#include "tests/cuda_emulation/nccl_comm.h"
#include "tests/cuda_emulation/state.h"

namespace emu::nccl {
namespace {
struct Block {
  void* base;  // of cudaMalloc
  std::size_t size;
};
std::map<char*, Block>& blocks() {  // under the runtime's lock
  static std::map<char*, Block> all;
  return all;
}

bool from_mem_alloc(const void* p, std::size_t n) {
  auto* at = static_cast<char*>(const_cast<void*>(p));
  auto it = blocks().upper_bound(at);
  if (it == blocks().begin()) return false;
  --it;
  return at + n <= it->first + it->second.size;
}

bool aligned(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p) % NCCL_WIN_REQUIRED_ALIGNMENT == 0;
}

using List = std::vector<std::pair<void*, std::size_t>>;
ncclResult_t drop(Comm& c, List& list, void* handle, const char* what) {
  const auto it = std::find_if(list.begin(), list.end(),
                               [&](const auto& entry) { return entry.first == handle; });
  if (it == list.end())
    return misuse(&c, ncclInvalidArgument, std::string(what) + ": not registered");
  list.erase(it);
  return ncclSuccess;
}
}  // namespace
}  // namespace emu::nccl

using emu::nccl::misuse;

extern "C" {
ncclResult_t ncclMemAlloc(void** p, size_t n) {
  const emu::Guard g;
  if (!p) return misuse(nullptr, ncclInvalidArgument, "ncclMemAlloc: no place for the address");
  if (const int fault = emu::take_fault("ncclMemAlloc")) return ncclResult_t(fault);
  void* base = nullptr;
  if (cudaMalloc(&base, n + NCCL_WIN_REQUIRED_ALIGNMENT) != cudaSuccess)
    return ncclUnhandledCudaError;
  const auto at = (reinterpret_cast<std::uintptr_t>(base) + NCCL_WIN_REQUIRED_ALIGNMENT - 1) /
                  NCCL_WIN_REQUIRED_ALIGNMENT * NCCL_WIN_REQUIRED_ALIGNMENT;
  *p = reinterpret_cast<void*>(at);
  emu::nccl::blocks()[static_cast<char*>(*p)] = {base, n};
  return ncclSuccess;
}
ncclResult_t ncclMemFree(void* p) {
  const emu::Guard g;
  if (!p) return ncclSuccess;
  const auto it = emu::nccl::blocks().find(static_cast<char*>(p));
  if (it == emu::nccl::blocks().end())
    return misuse(nullptr, ncclInvalidArgument, "ncclMemFree of what ncclMemAlloc did not give");
  void* base = it->second.base;
  emu::nccl::blocks().erase(it);
  return cudaFree(base) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t c, void* p, size_t n, ncclWindow_t* out, int flags) {
  const emu::Guard g;
  if (!c || !out) return misuse(nullptr, ncclInvalidArgument, "no communicator, or no window");
  *out = nullptr;
  if (const auto error = ready_for_calls(c->comm)) return error;
  if (flags != NCCL_WIN_DEFAULT && flags != NCCL_WIN_COLL_SYMMETRIC)
    return misuse(c->comm.get(), ncclInvalidArgument, "ncclCommWindowRegister: unknown flags");
  if (!emu::nccl::aligned(p))
    return misuse(c->comm.get(), ncclInvalidArgument,
                  "ncclCommWindowRegister: the buffer is not aligned to 4096 bytes");
  if (n == 0 || !emu::nccl::from_mem_alloc(p, n))
    return misuse(c->comm.get(), ncclInvalidArgument,
                  "ncclCommWindowRegister: the buffer does not lie in memory of ncclMemAlloc");
  return now_or_later(c->comm, [comm = c->comm, p, n, out] {
    comm->windows.emplace_back(p, n);
    *out = static_cast<ncclWindow_t>(p);
    return ncclSuccess;
  });
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t c, ncclWindow_t window) {
  const emu::Guard g;
  if (!c) return misuse(nullptr, ncclInvalidArgument, "no communicator");
  if (const auto error = ready_for_calls(c->comm)) return error;
  return now_or_later(c->comm, [comm = c->comm, window] {
    return emu::nccl::drop(*comm, comm->windows, window, "ncclCommWindowDeregister");
  });
}
ncclResult_t ncclCommRegister(const ncclComm_t c, void* p, size_t n, void** handle) {
  const emu::Guard g;
  if (!c || !handle) return misuse(nullptr, ncclInvalidArgument, "no communicator, or no handle");
  *handle = nullptr;
  if (!p || n == 0) return misuse(c->comm.get(), ncclInvalidArgument, "an empty buffer");
  c->comm->registered.emplace_back(p, n);
  *handle = p;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t c, void* handle) {
  const emu::Guard g;
  if (!c) return misuse(nullptr, ncclInvalidArgument, "no communicator");
  return emu::nccl::drop(*c->comm, c->comm->registered, handle, "ncclCommDeregister");
}
}
