// SPDX-License-Identifier: Apache-2.0
// Who holds which KV block. Every block is in exactly one state: free, parked (nobody holds it, the
// prefix cache knows its content), or held by one or more sequences. A release names the last step
// that references the block: until that step's result is in, the holder's reference stays behind as
// a fence. Owned by the scheduler; pure; one thread.
#pragma once
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "worker/leader/prefix_cache.h"

namespace cohort {

struct BlockCounts {
  int32_t total = 0;
  int32_t free = 0;
  int32_t parked = 0;  // cached, held by nobody
  int32_t held = 0;    // by sequences or fences
  friend bool operator==(const BlockCounts&, const BlockCounts&) = default;
};

class BlockAllocator {
 public:
  explicit BlockAllocator(int32_t blocks);

  // Blocks that allocate() can give now, and how many more it can when all fences have fallen.
  int32_t available() const { return static_cast<int32_t>(free_.size()) + cache_.parked(); }
  int32_t arriving() const { return arriving_; }

  // Appends `count` blocks to `out`, each with one reference that the caller must release; the
  // least recently used cached content is forgotten where free blocks do not suffice. False, and
  // nothing changed, if fewer are available.
  bool allocate(int32_t count, std::vector<int32_t>& out);

  // Leading blocks of a sequence that are cached: looks only.
  std::vector<int32_t> find_prefix(std::span<const BlockKey> keys) const;
  // One more reference to each of these cached blocks; the caller must release them.
  void share(std::span<const int32_t> blocks);
  // Enters a block that the caller holds, full and written by a finished step, in the cache.
  void remember(const BlockKey& key, int32_t block);

  // Gives up one reference to each block of a table (in table order). Steps up to `last_step` may
  // still use them: unless that step is completed, they stay fenced.
  void release(std::span<const int32_t> blocks, uint64_t last_step);
  // The result of `step`, and of all before it, is in.
  void completed(uint64_t step);

  BlockCounts counts() const;
  // Every block is in one state, and references are those of `tables` and the fences. For tests and
  // for a replica that has gone idle.
  Status check_integrity(std::span<const std::vector<int32_t>* const> tables) const;

  const PrefixCache& cache() const { return cache_; }

 private:
  struct Fence {
    uint64_t step;
    std::vector<int32_t> blocks;
  };
  void drop(std::span<const int32_t> blocks);

  PrefixCache cache_;
  std::vector<int32_t> references_;  // per block, fences included
  std::vector<int32_t> fences_of_;   // per block: how many of its references are fences
  std::vector<int32_t> free_;        // last in, first out: warm in the processor's cache
  std::deque<Fence> fences_;
  int32_t arriving_ = 0;  // blocks that only fences hold
  uint64_t completed_ = 0;
};

}  // namespace cohort
