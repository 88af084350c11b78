// SPDX-License-Identifier: Apache-2.0
// Which KV blocks hold what: full blocks by the hash chain of their tokens. A block in the cache is
// either held by sequences, or parked: nobody holds it, its content stays until its memory is
// wanted. Parked blocks go least recently parked first; a released sequence parks its tail first,
// so that a chain is lost from its end. Owned by the block allocator's thread; pure.
#pragma once
#include <array>
#include <cstdint>
#include <cstring>
#include <list>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace cohort {

// SHA-256(key of the block before, 16 token ids, salt), cut to 128 bits: a collision would show one
// tenant's text to another, so the hash is cryptographic. The first block's parent is all zeros.
using BlockKey = std::array<uint8_t, 16>;
BlockKey block_key(const BlockKey& parent, std::span<const int32_t> tokens, std::string_view salt);

class PrefixCache {
 public:
  explicit PrefixCache(int32_t blocks);

  // The block with this content. Changes nothing.
  std::optional<int32_t> find(const BlockKey& key) const;
  bool contains(int32_t block) const { return entries_[size_t(block)].cached; }
  bool is_parked(int32_t block) const { return entries_[size_t(block)].parked; }
  int32_t parked() const { return static_cast<int32_t>(parked_.size()); }

  // Remembers what a held block holds. False, and nothing changed, if another block has the same
  // content already: the caller's block then stays anonymous.
  bool insert(const BlockKey& key, int32_t block);
  // A cached block lost its last holder: it becomes the last to be evicted.
  void park(int32_t block);
  // A parked block is held again.
  void unpark(int32_t block);
  // Forgets the least recently parked block and gives it to the caller; nothing if none is parked.
  std::optional<int32_t> evict();

 private:
  struct KeyHash {
    size_t operator()(const BlockKey& key) const {
      size_t hash = 0;
      std::memcpy(&hash, key.data(), sizeof hash);
      return hash;
    }
  };
  struct Entry {
    bool cached = false;
    bool parked = false;
    BlockKey key{};
    std::list<int32_t>::iterator place;  // in parked_, if parked
  };

  std::vector<Entry> entries_;  // per block
  std::unordered_map<BlockKey, int32_t, KeyHash> by_key_;
  std::list<int32_t> parked_;  // next victim first
};

}  // namespace cohort
