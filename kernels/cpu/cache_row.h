// SPDX-License-Identifier: Apache-2.0
// Writing to the KV cache on the CPU: one token's key or value of one head, rounded to the cache's
// type (docs/arithmetic.md section 4).
#pragma once
#include "kernels/kv_layout.h"

namespace cohort::cpu {

// x [dim] goes to slot 0 .. 15 of the chunk of a block and head. Nothing else is touched.
void store_key(const KvGeometry& geometry, std::byte* chunk, int slot, const float* x);
void store_value(const KvGeometry& geometry, std::byte* chunk, int slot, const float* x);

}  // namespace cohort::cpu
