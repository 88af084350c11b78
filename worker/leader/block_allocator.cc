// SPDX-License-Identifier: Apache-2.0
#include "worker/leader/block_allocator.h"

#include <algorithm>

#include "base/check.h"

namespace cohort {

BlockAllocator::BlockAllocator(int32_t blocks)
    : cache_(blocks), references_(size_t(blocks)), fences_of_(size_t(blocks)) {
  for (int32_t block = blocks; block-- > 0;) free_.push_back(block);
}

bool BlockAllocator::allocate(int32_t count, std::vector<int32_t>& out) {
  if (count > available()) return false;
  for (int32_t i = 0; i < count; ++i) {
    int32_t block = 0;
    if (free_.empty()) {
      block = *cache_.evict();
    } else {
      block = free_.back();
      free_.pop_back();
    }
    references_[size_t(block)] = 1;
    out.push_back(block);
  }
  return true;
}

std::vector<int32_t> BlockAllocator::find_prefix(std::span<const BlockKey> keys) const {
  std::vector<int32_t> blocks;
  for (const BlockKey& key : keys) {
    const auto block = cache_.find(key);
    if (!block) break;
    blocks.push_back(*block);
  }
  return blocks;
}

void BlockAllocator::share(std::span<const int32_t> blocks) {
  for (const int32_t block : blocks) {
    COHORT_CHECK(cache_.contains(block));
    if (cache_.is_parked(block)) cache_.unpark(block);
    int32_t& references = references_[size_t(block)];
    if (references > 0 && references == fences_of_[size_t(block)]) --arriving_;
    ++references;
  }
}

void BlockAllocator::remember(const BlockKey& key, int32_t block) {
  COHORT_CHECK_GT(references_[size_t(block)], 0);
  if (!cache_.contains(block)) cache_.insert(key, block);
}

void BlockAllocator::release(std::span<const int32_t> blocks, uint64_t last_step) {
  if (last_step <= completed_) return drop(blocks);
  for (const int32_t block : blocks) {
    COHORT_CHECK_GT(references_[size_t(block)], fences_of_[size_t(block)]);
    if (++fences_of_[size_t(block)] == references_[size_t(block)]) ++arriving_;
  }
  fences_.push_back({last_step, {blocks.begin(), blocks.end()}});
}

void BlockAllocator::completed(uint64_t step) {
  completed_ = std::max(completed_, step);
  // Not sorted: a sequence may be released long after its last step.
  std::erase_if(fences_, [this](const Fence& fence) {
    if (fence.step > completed_) return false;
    for (const int32_t block : fence.blocks) {
      if (fences_of_[size_t(block)]-- == references_[size_t(block)]) --arriving_;
    }
    drop(fence.blocks);
    return true;
  });
}

void BlockAllocator::drop(std::span<const int32_t> blocks) {
  for (size_t i = blocks.size(); i-- > 0;) {
    const int32_t block = blocks[i];
    int32_t& references = references_[size_t(block)];
    COHORT_CHECK_GT(references, fences_of_[size_t(block)]);
    if (--references > 0) {
      if (references == fences_of_[size_t(block)]) ++arriving_;
    } else if (cache_.contains(block)) {
      cache_.park(block);
    } else {
      free_.push_back(block);
    }
  }
}

BlockCounts BlockAllocator::counts() const {
  const auto total = static_cast<int32_t>(references_.size());
  return {total, static_cast<int32_t>(free_.size()), cache_.parked(),
          total - static_cast<int32_t>(free_.size()) - cache_.parked()};
}

Status BlockAllocator::check_integrity(std::span<const std::vector<int32_t>* const> tables) const {
  std::vector<int32_t> expected(references_.size()), states(references_.size());
  for (const auto* table : tables)
    for (const int32_t block : *table) ++expected[size_t(block)];
  int32_t only_fenced = 0;
  for (size_t b = 0; b < expected.size(); ++b)
    if (expected[b] == 0 && fences_of_[b] > 0) ++only_fenced;
  for (const Fence& fence : fences_)
    for (const int32_t block : fence.blocks) ++expected[size_t(block)];
  for (const int32_t block : free_) ++states[size_t(block)];
  for (size_t b = 0; b < expected.size(); ++b) {
    if (expected[b] != references_[b])
      return internal_error(concat("block ", b, " has ", references_[b], " references, but ",
                                   expected[b], " holders and fences"));
    const int32_t parked = cache_.is_parked(int32_t(b)) ? 1 : 0, held = references_[b] > 0 ? 1 : 0;
    if (states[b] + parked + held != 1)
      return internal_error(concat("block ", b, " is ", states[b], " times free, ", parked,
                                   " times parked, ", held, " times held"));
  }
  if (only_fenced != arriving_)
    return internal_error(
        concat(arriving_, " blocks are counted as arriving, but ", only_fenced, " are"));
  return Status::ok_status();
}

}  // namespace cohort
