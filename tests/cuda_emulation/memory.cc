// SPDX-License-Identifier: Apache-2.0
// Device and page-locked memory: host memory that starts full of NaN bytes, is measured, and is
// checked for overruns and late uses.
#include "tests/cuda_emulation/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace emu {
namespace {
constexpr std::size_t kAlignment = 256;  // as cudaMalloc guarantees
constexpr int kPoison = 0xff;            // NaN in every float format
constexpr std::size_t kQuarantine = 64 << 20;
// A stripe behind each allocation that nothing may write to. AddressSanitizer has a better one.
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kStripe = 0;
#else
constexpr std::size_t kStripe = 64;
#endif
constexpr int kStripeByte = 0xa5;

std::size_t charged(std::size_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

bool all_are(const char* p, std::size_t n, int byte) {
  return std::all_of(p, p + n, [=](char c) { return c == static_cast<char>(byte); });
}

void release_oldest() {
  auto& s = state();
  const Quarantined q = s.quarantine.front();
  s.quarantine.pop_front();
  s.quarantined_bytes -= q.size;
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(q.base, q.size);
#endif
  if (!all_are(q.base, q.size, kPoison)) report("freed memory was written to");
  std::free(q.base);
}

void quarantine(char* base, std::size_t size) {
  std::memset(base, kPoison, size);
#if defined(__SANITIZE_ADDRESS__)
  ASAN_POISON_MEMORY_REGION(base, size);
#endif
  auto& s = state();
  s.quarantine.push_back({base, size});
  s.quarantined_bytes += size;
  while (s.quarantined_bytes > kQuarantine) release_oldest();
}

using Entry = std::map<char*, Allocation>::value_type;
Entry* containing(const void* p) {
  auto& memory = state().memory;
  auto it = memory.upper_bound(static_cast<char*>(const_cast<void*>(p)));
  if (it == memory.begin()) return nullptr;
  --it;
  return p < it->first + it->second.size ? &*it : nullptr;
}

bool in_quarantine(const void* p) {
  const auto& q = state().quarantine;
  return std::any_of(q.begin(), q.end(),
                     [=](const Quarantined& x) { return p >= x.base && p < x.base + x.size; });
}
}  // namespace

cudaError_t allocate(void** out, std::size_t n, int device, bool allocated) {
  auto& s = state();
  *out = nullptr;
  if (n == 0) return cudaSuccess;
  if (device != kHost && (n > s.settings.memory || s.used[device] + charged(n) > s.settings.memory))
    return fail(cudaErrorMemoryAllocation);
  if (posix_memalign(out, kAlignment, n + kStripe)) return fail(cudaErrorMemoryAllocation);
  std::memset(*out, kPoison, n);
  auto* base = static_cast<char*>(*out);
  std::memset(base + n, kStripeByte, kStripe);
  s.used[device] += charged(n);
  s.memory[base] = {n, device, allocated, false};
  return cudaSuccess;
}

void deallocate(char* base) {
  auto& s = state();
  const auto it = s.memory.find(base);
  const Allocation a = it->second;
  s.memory.erase(it);
  s.used[a.device] -= charged(a.size);
  if (!all_are(base + a.size, kStripe, kStripeByte))
    report("a write ran past the end of an allocation of " + std::to_string(a.size) + " bytes");
  quarantine(base, a.size);
}

Allocation* allocation_at(void* p) {
  const auto it = state().memory.find(static_cast<char*>(p));
  return it == state().memory.end() ? nullptr : &it->second;
}

Place locate(const void* p, std::size_t n) {
  if (const Entry* e = containing(p)) {
    const Place place{
        e->second.device == kHost ? Kind::pinned : Kind::device, e->second.device, {}};
    const auto room =
        static_cast<std::size_t>(e->first + e->second.size - static_cast<const char*>(p));
    if (e->second.freed) return {place.kind, place.device, "memory that was freed"};
    if (n > room)
      return {place.kind, place.device,
              std::to_string(n - room) + " bytes past the end of an allocation of " +
                  std::to_string(e->second.size)};
    return place;
  }
  if (in_quarantine(p)) return {Kind::device, kHost, "memory that was freed"};
  return {Kind::pageable, kHost, {}};
}

bool usable_now(const void* p) {
  const Entry* e = containing(p);
  return e && e->second.allocated;
}
}  // namespace emu

using emu::enter;
using emu::fail;
using emu::Guard;
using emu::misuse;
using emu::state;

namespace {
cudaError_t new_memory(void** p, std::size_t n, bool host, const char* api) {
  const Guard g;
  *p = nullptr;
  if (const auto e = enter(api)) return e;
  if (const auto e = emu::unsafe(api)) return e;
  return emu::allocate(p, n, host ? emu::kHost : emu::current_device(), true);
}
cudaError_t free_checked(void* p, bool host, const char* api) {
  const Guard g;
  if (!p) return cudaSuccess;
  emu::Allocation* a = emu::allocation_at(p);
  if (!a || a->freed || (a->device == emu::kHost) != host)
    return misuse(cudaErrorInvalidValue,
                  std::string(api) + " of what is not the start of such an allocation");
  const cudaError_t injected = static_cast<cudaError_t>(emu::take_fault(api));
  if (injected) return fail(injected);
  if (emu::running_work()) return enter(api);
  if (const auto e = emu::unsafe(api)) return e;
  // cudaFree waits for the device. Where it cannot any more, nothing of it will run either.
  const int device = a->device;
  const bool idle = host || emu::drain(device);
  emu::deallocate(static_cast<char*>(p));
  if (idle) return cudaSuccess;
  return fail(emu::lost(device) ? emu::lost(device) : cudaErrorUnknown);
}
}  // namespace

extern "C" {
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const Guard g;
  if (const auto e = enter(__func__)) return e;
  auto& s = state();
  *total = s.settings.memory;
  const auto used = s.used[emu::current_device()];
  *free = used > *total ? 0 : *total - used;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** p, size_t n) { return new_memory(p, n, false, __func__); }
cudaError_t cudaFree(void* p) { return free_checked(p, false, __func__); }
cudaError_t cudaHostAlloc(void** p, size_t n, unsigned) { return new_memory(p, n, true, __func__); }
cudaError_t cudaMallocHost(void** p, size_t n) { return new_memory(p, n, true, __func__); }
// Does not wait: a copy that still needs the memory is an error when it runs.
cudaError_t cudaFreeHost(void* p) { return free_checked(p, true, __func__); }

cudaError_t cudaMallocAsync(void** p, size_t n, cudaStream_t s) {
  const Guard g;
  if (const auto e = enter(__func__)) return e;
  if (const auto e = emu::need(s)) return e;
  if (s->capture)
    return misuse(cudaErrorStreamCaptureUnsupported, "memory nodes of graphs are not emulated");
  if (const auto e = emu::allocate(p, n, s->device, false); e || !*p) return e;
  return emu::submit(s, [base = *p, n] {
    return emu::Work{"allocation",
                     {},
                     {},
                     [=] {
                       emu::allocation_at(base)->allocated = true;
                       emu::writes(base, n);
                       std::memset(base, emu::kPoison, n);
                     },
                     {},
                     false};
  });
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t s) {
  const Guard g;
  if (const auto e = enter(__func__)) return e;
  if (const auto e = emu::need(s)) return e;
  if (!p) return cudaSuccess;
  emu::Allocation* a = emu::allocation_at(p);
  if (!a || a->freed || a->device != s->device)
    return misuse(cudaErrorInvalidValue,
                  "cudaFreeAsync of what is not the start of an allocation of the stream's device");
  if (s->capture)
    return misuse(cudaErrorStreamCaptureUnsupported, "memory nodes of graphs are not emulated");
  a->freed = true;
  return emu::submit(s, [base = static_cast<char*>(p), n = a->size] {
    return emu::Work{"free", {}, {}, [=] { emu::writes(base, n); }, [=] { emu::deallocate(base); },
                     false};
  });
}
}
