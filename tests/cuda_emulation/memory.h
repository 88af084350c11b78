// SPDX-License-Identifier: Apache-2.0
// Where a pointer points to, as the emulated runtime knows it.
#pragma once
#include <string>

#include "tests/cuda_emulation/state.h"

namespace emu {
enum class Kind { pageable, pinned, device };
struct Place {
  Kind kind;
  int device;         // kHost unless kind is device
  std::string wrong;  // why [p, p + n) may not be used, else empty
};
Place locate(const void* p, std::size_t n);
// Whether the stream-ordered allocation that p is in has taken place. False outside all of them.
bool usable_now(const void* p);

// `device`: kHost for page-locked host memory. Null for 0 bytes.
cudaError_t allocate(void** out, std::size_t n, int device, bool allocated);
void deallocate(char* base);
Allocation* allocation_at(void* p);  // null unless p is the start of one
}  // namespace emu
