// SPDX-License-Identifier: Apache-2.0
// Kernels that are right, or wrong in one way when `planted`: what the emulation must find.
#pragma once
#include "kernels/cuda/portable.h"

namespace cohort::planted {
constexpr int kThreads = 128;

// *out = the sum of kThreads numbers, by one block; shared: kThreads floats.
// Planted: no barrier between the halves of the tree.
__global__ void sum(const float* in, float* out, bool planted);
// out[i] = the sum over 3 rounds of in[i ^ 64] * round, by one block; shared: kThreads floats.
// Planted: no barrier between the reads of a round and the writes of the next.
__global__ void rounds(const float* in, float* out, bool planted);
// out = in with its 16-byte pieces reversed, by one block of kThreads, one piece each; shared: as
// much. Planted: no wait for the copy.
__global__ void reverse(const uint4* in, uint4* out, bool planted);
// The same. Planted: no barrier after the wait.
__global__ void reverse_barrier(const uint4* in, uint4* out, bool planted);
// Each lane takes the number of its neighbour in the warp. Planted: no __syncwarp.
__global__ void swap_neighbours(const float* in, float* out, bool planted);
// Planted: the warps of a block wait in different lines.
__global__ void divergent(float* out, bool planted);
// *out counts the threads. Planted: by plain additions.
__global__ void count(unsigned* out, bool planted);
// out[i] = i for each block i. Planted: every block but the first reads what the one before wrote.
__global__ void blocks(int* out, bool planted);
}  // namespace cohort::planted
