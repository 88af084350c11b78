// SPDX-License-Identifier: Apache-2.0
// For tests of the emulated device: runs a function object as a kernel, without streams.
#pragma once
#include <string>

#include "kernels/cuda/portable.h"
#include "tests/cuda_emulation/runtime.h"

namespace cohort {
// kernel() runs once per CUDA thread. Throws emu::Error for its mistakes.
template <class Kernel>
void run_kernel(dim3 grid, dim3 block, std::size_t shared_bytes, const Kernel& kernel) {
  emu::run_grid(
      grid, block, shared_bytes, [](const void* k) { (*static_cast<const Kernel*>(k))(); },
      &kernel);
}

// What run_kernel reports; empty when it reports nothing.
template <class Kernel>
std::string mistake_of(dim3 grid, dim3 block, std::size_t shared_bytes, const Kernel& kernel) {
  try {
    run_kernel(grid, block, shared_bytes, kernel);
  } catch (const emu::Error& e) {
    return e.what;
  }
  return "";
}
}  // namespace cohort
