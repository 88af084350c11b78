// SPDX-License-Identifier: Apache-2.0
// The KV memory of one rank. Block ids are the same on all ranks of the replica; each rank holds
// its own heads and layers of a block. All memory (on the CPU: address space) is taken at
// construction.
#pragma once
#include <cstdint>

#include "base/buffer.h"
#include "base/device.h"
#include "kernels/kv_layout.h"

namespace cohort {

class KvPool {
 public:
  KvPool(Device& device, const KvGeometry& geometry, int64_t layers, int32_t blocks)
      : geometry_(geometry),
        blocks_(blocks),
        memory_(device.allocate(size_t(layers) * size_t(blocks) * geometry.block_bytes())) {}

  const KvGeometry& geometry() const { return geometry_; }
  int32_t blocks() const { return blocks_; }
  // layer: counted from this rank's first.
  KvLayer layer(int64_t layer) const {
    return {memory_.data() + size_t(layer) * size_t(blocks_) * geometry_.block_bytes(), geometry_};
  }

 private:
  const KvGeometry geometry_;
  const int32_t blocks_;
  Buffer memory_;  // [layer][block]
};

// How many blocks a rank can offer.
struct KvDemand {
  int64_t block_bytes = 0;  // of all layers of this rank
  int64_t kv_memory = 0;    // asked for; 0: choose
  int64_t most_blocks = 0;  // more are of no use: slots * blocks of the longest sequence
  // What the rank may take where nothing else was asked for.
  int64_t share = 0;
};
int64_t affordable_blocks(const KvDemand& demand);

}  // namespace cohort
