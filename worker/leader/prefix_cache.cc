// SPDX-License-Identifier: Apache-2.0
#include "worker/leader/prefix_cache.h"

#include <algorithm>

#include "base/check.h"
#include "base/sha256.h"

namespace cohort {

BlockKey block_key(const BlockKey& parent, std::span<const int32_t> tokens, std::string_view salt) {
  const Sha256Digest digest = Sha256()
                                  .update(std::as_bytes(std::span(parent)))
                                  .update(std::as_bytes(tokens))
                                  .update(salt)
                                  .finish();
  BlockKey key;
  std::copy_n(digest.begin(), key.size(), key.begin());
  return key;
}

PrefixCache::PrefixCache(int32_t blocks) : entries_(size_t(blocks)) {}

std::optional<int32_t> PrefixCache::find(const BlockKey& key) const {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return std::nullopt;
  return found->second;
}

bool PrefixCache::insert(const BlockKey& key, int32_t block) {
  Entry& entry = entries_[size_t(block)];
  COHORT_CHECK(!entry.cached);
  if (!by_key_.emplace(key, block).second) return false;
  entry.cached = true;
  entry.key = key;
  return true;
}

void PrefixCache::park(int32_t block) {
  Entry& entry = entries_[size_t(block)];
  COHORT_CHECK(entry.cached && !entry.parked);
  entry.parked = true;
  entry.place = parked_.insert(parked_.end(), block);
}

void PrefixCache::unpark(int32_t block) {
  Entry& entry = entries_[size_t(block)];
  COHORT_CHECK(entry.parked);
  entry.parked = false;
  parked_.erase(entry.place);
}

std::optional<int32_t> PrefixCache::evict() {
  if (parked_.empty()) return std::nullopt;
  const int32_t block = parked_.front();
  unpark(block);
  Entry& entry = entries_[size_t(block)];
  by_key_.erase(entry.key);
  entry.cached = false;
  return block;
}

}  // namespace cohort
