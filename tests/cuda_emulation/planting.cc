// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_emulation/planting.h"

#include <algorithm>

#include "tests/cuda_emulation/state.h"

namespace emu {
namespace {
const char* const kRuntimeCalls[] = {
    "cudaStreamWaitEvent", "cudaEventQuery",  "cudaEventSynchronize", "cudaStreamSynchronize",
    "cudaMemcpyAsync",     "cudaMemsetAsync", "kernel launch"};
const char* const kNcclCalls[] = {"ncclAllReduce",     "ncclReduce",   "ncclBroadcast",
                                  "ncclAllGather",     "ncclAlltoAll", "ncclSend",
                                  "ncclReduceScatter", "ncclRecv"};

bool among(const auto& names, const std::string& api) {
  return std::find(std::begin(names), std::end(names), api) != std::end(names);
}

void plant(const std::string& api, int skip, int device, bool swap) {
  const Guard g;
  if (!among(kNcclCalls, api) && (swap || !among(kRuntimeCalls, api)))
    raise("no mistake can be planted in calls of " + api);
  state().plants.push_back({api, device, skip, swap, false});
}

bool take(const char* api, const std::string& what, bool swap) {
  auto& s = state();
  const auto it = std::find_if(s.plants.begin(), s.plants.end(), [&](const Plant& p) {
    return p.due && p.swap == swap && p.api == api;
  });
  if (it == s.plants.end() || (it->device != kAnyDevice && it->device != current_device()))
    return false;
  s.plants.erase(it);
  s.latest_mistake = what;
  return true;
}
}  // namespace

void drop_next(const std::string& api, int skip, int device) { plant(api, skip, device, false); }
void swap_next(const std::string& api, int skip, int device) { plant(api, skip, device, true); }

std::size_t planted() {
  const Guard g;
  return state().plants.size();
}

std::string latest_mistake() {
  const Guard g;
  return state().latest_mistake;
}

std::uint64_t calls(const std::string& api, int device) {
  const Guard g;
  const auto& calls = state().calls;
  const auto it = calls.find({api, device});
  return it == calls.end() ? 0 : it->second;
}

void count(const char* api) {
  auto& s = state();
  const int device = current_device();
  ++s.calls[{api, device}];
  for (Plant& p : s.plants)
    if (!p.due && p.api == api && (p.device == kAnyDevice || p.device == device))
      p.due = p.skip-- == 0;
}

bool dropped(const char* api, const std::string& what) { return take(api, what, false); }
bool swapped(const char* api, const std::string& what) { return take(api, what, true); }
}  // namespace emu
