// SPDX-License-Identifier: Apache-2.0
// KV blocks in and out of a contiguous buffer, for moving them between GPUs and to the host.
#pragma once
#include "base/stream.h"
#include "base/tensor.h"
#include "kernels/kv_layout.h"

namespace cohort::cuda {

enum class Direction { pack, unpack };  // cache to buffer, buffer to cache

// Block block_ids[i] of the layer <-> packed + i * block_bytes(). block_ids i32 [n]; -1: nothing.
// No id twice where blocks are unpacked. All in device memory, packed aligned to 16 bytes.
void copy_blocks(Stream& stream, const KvLayer& kv, Tensor block_ids, void* packed,
                 Direction direction);

}  // namespace cohort::cuda
