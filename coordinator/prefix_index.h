// SPDX-License-Identifier: Apache-2.0
// Which prompts a replica has seen, as hashes of chains of 16-token blocks: a guess of what its
// prefix cache holds. A wrong guess costs time, never correctness, so 64-bit hashes do. Bounded:
// two generations of `capacity` hashes, the older one is forgotten. Used by one thread.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "model/tokenizer.h"

namespace cohort {

constexpr int kBlockTokens = 16;

// One hash per full block; each covers everything before it, and the salt.
std::vector<uint64_t> block_chain(std::span<const TokenId> tokens, const std::string& salt);

class PrefixIndex {
 public:
  explicit PrefixIndex(size_t capacity = 1 << 16) : capacity_(capacity) {}
  void insert(std::span<const uint64_t> chain);
  // Leading blocks of the chain that are known.
  size_t matched(std::span<const uint64_t> chain) const;
  void clear();

 private:
  size_t capacity_;
  std::unordered_set<uint64_t> young_, old_;
};

}  // namespace cohort
