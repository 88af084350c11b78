// SPDX-License-Identifier: Apache-2.0
// Memory of one member of a group that the others can read, made when the group exists: what is
// large need not be copied to where they see it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

namespace cohort {

// Keeps the memory alive as long as anybody has it.
using SharedBlock = std::shared_ptr<std::byte>;

// How peers find a block; travels as plain bytes.
struct BlockAddress {
  uint64_t owner = 0, place = 0;
  int64_t bytes = 0;
};

class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  // Zeroed, aligned to a page. Peers can find it until the next create() or settle().
  virtual Result<SharedBlock> create(int64_t bytes, BlockAddress& address) = 0;
  // A peer's block.
  virtual Result<SharedBlock> find(const BlockAddress& address) = 0;
  // All have found it.
  virtual void settle() = 0;
};

}  // namespace cohort
