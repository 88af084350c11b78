// SPDX-License-Identifier: Apache-2.0
// Mistakes of the caller, planted from outside: a test shows that they would be found without any
// change to the code that it tests.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace emu {
constexpr int kAnyDevice = -1;

// The call of `api` on `device` (the calling thread's current one) after `skip` more of them does
// nothing and says success. Of a function that asks or waits: it claims that all is done. api:
// cudaStreamWaitEvent, cudaEventQuery, cudaEventSynchronize, cudaStreamSynchronize,
// cudaMemcpyAsync, cudaMemsetAsync, "kernel launch", or a call of NCCL that moves data.
void drop_next(const std::string& api, int skip = 0, int device = kAnyDevice);
// The call of NCCL changes places with the device's next one, of whatever name and communicator.
// Calls within a group stay where they are.
void swap_next(const std::string& api, int skip = 0, int device = kAnyDevice);
std::size_t planted();         // how many of them have not come to their call yet
std::string latest_mistake();  // says which call the latest was: "wait of stream 1 for stream 0"

// Calls so far, so that a test can enumerate those of a stretch of work.
std::uint64_t calls(const std::string& api, int device);

// For the entry points. A drop_next, or a swap_next, was meant for this call, which `what`
// describes; after count().
void count(const char* api);
bool dropped(const char* api, const std::string& what);
bool swapped(const char* api, const std::string& what);
}  // namespace emu
