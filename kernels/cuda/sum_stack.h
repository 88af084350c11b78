// SPDX-License-Identifier: Apache-2.0
// Partial sums of a tree in registers: one thread adds up kWide neighbouring elements of many rows,
// which it takes in order, merging as many sums after each row as the tree says.
#pragma once
#include "kernels/cuda/portable.h"

namespace cohort::cuda {

template <int kWide>
struct alignas(4 * kWide) Elements {
  float v[kWide];
};

// All indices are known to the compiler, so that it stays in registers: top[0] is the newest.
template <int kDepth, int kWide>
struct Stack {
  Elements<kWide> top[kDepth];

  GPU_FN void push(const Elements<kWide>& x) {
#pragma unroll
    for (int d = kDepth - 1; d > 0; d--) top[d] = top[d - 1];
    top[0] = x;
  }
  // The older one is the left operand, as in TreeAdd.
  GPU_FN void merge() {
#pragma unroll
    for (int i = 0; i < kWide; i++) top[0].v[i] = top[1].v[i] + top[0].v[i];
#pragma unroll
    for (int d = 1; d + 1 < kDepth; d++) top[d] = top[d + 1];
  }
};

}  // namespace cohort::cuda
