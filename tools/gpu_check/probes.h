// SPDX-License-Identifier: Apache-2.0
// Plain reading and copying of memory: the ceilings of kernels that do little else.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace cohort::gpu_check {

// bytes: a multiple of 16 per thread, of 1 MiB at best.
void copy_memory(cudaStream_t stream, int multiprocessors, const void* from, void* to,
                 int64_t bytes);
// Reads everything; writes one word to `sink` [1] where the bits are what they never are.
void read_memory(cudaStream_t stream, int multiprocessors, const void* from, uint32_t* sink,
                 int64_t bytes);

}  // namespace cohort::gpu_check
