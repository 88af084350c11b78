// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/planted_kernels.h"

namespace cohort::planted {
__global__ void sum(const float* in, float* out, bool planted) {
  auto* shared = gpu::dynamic_shared<float>();
  const int t = static_cast<int>(threadIdx.x);
  shared[t] = in[t];  // sum writes
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (!planted) __syncthreads();
    if (t >= half) continue;
    const float other = shared[t + half];  // sum reads
    shared[t] += other;
  }
  if (t == 0) *out = shared[0];
}

__global__ void rounds(const float* in, float* out, bool planted) {
  auto* shared = gpu::dynamic_shared<float>();
  const int t = static_cast<int>(threadIdx.x);
  float sum = 0;
  for (int round = 1; round <= 3; ++round) {
    shared[t] = in[t] * static_cast<float>(round);  // rounds write
    __syncthreads();
    sum += shared[t ^ 64];  // rounds read
    if (!planted) __syncthreads();
  }
  out[t] = sum;
}

__global__ void reverse(const uint4* in, uint4* out, bool planted) {
  auto* shared = gpu::dynamic_shared<uint4>();
  const int t = static_cast<int>(threadIdx.x);
  gpu::cp_async16(&shared[t], &in[t]);
  gpu::cp_async_commit();
  if (!planted) gpu::cp_async_wait<0>();
  __syncthreads();
  gpu::store16(&out[t], gpu::load16<uint4>(&shared[kThreads - 1 - t]));
  gpu::cp_async_wait<0>();
}

__global__ void reverse_barrier(const uint4* in, uint4* out, bool planted) {
  auto* shared = gpu::dynamic_shared<uint4>();
  const int t = static_cast<int>(threadIdx.x);
  gpu::cp_async16(&shared[t], &in[t]);  // reverse writes
  gpu::cp_async_commit();
  gpu::cp_async_wait<0>();
  if (!planted) __syncthreads();
  const uint4 v = shared[kThreads - 1 - t];  // reverse reads
  gpu::store16(&out[t], v);
}

__global__ void swap_neighbours(const float* in, float* out, bool planted) {
  GPU_SHARED(float, shared, [kThreads]);
  const int t = static_cast<int>(threadIdx.x);
  shared[t] = in[t];  // swap writes
  if (!planted) __syncwarp();
  out[t] = shared[t ^ 1];  // swap reads
}

__global__ void divergent(float* out, bool planted) {
  if (planted && threadIdx.x < 32)
    __syncthreads();  // first warp
  else
    __syncthreads();  // others
  if (threadIdx.x == 0) *out = 1;
}

__global__ void count(unsigned* out, bool planted) {
  if (planted)
    *out += 1;  // count adds
  else
    atomicAdd(out, 1);
}

__global__ void blocks(int* out, bool planted) {
  const int b = static_cast<int>(blockIdx.x);
  if (threadIdx.x != 0) return;
  const int before = planted && b > 0 ? out[b - 1] + 1 : b;  // blocks read
  out[b] = before;                                           // blocks write
}
}  // namespace cohort::planted
