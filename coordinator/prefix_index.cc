// SPDX-License-Identifier: Apache-2.0
#include "coordinator/prefix_index.h"

#include <functional>
#include <utility>

namespace cohort {

// The finaliser of splitmix64 (Steele, Lea, Flood 2014): every input bit moves every output bit.
static uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::vector<uint64_t> block_chain(std::span<const TokenId> tokens, const std::string& salt) {
  std::vector<uint64_t> chain;
  chain.reserve(tokens.size() / kBlockTokens);
  uint64_t hash = mix(std::hash<std::string>()(salt));
  for (size_t i = 0; i < tokens.size(); ++i) {
    hash = mix(hash * 0x9e3779b97f4a7c15u + static_cast<uint32_t>(tokens[i]) + 1);
    if ((i + 1) % kBlockTokens == 0) chain.push_back(hash);
  }
  return chain;
}

void PrefixIndex::insert(std::span<const uint64_t> chain) {
  for (const uint64_t hash : chain) {
    if (young_.size() >= capacity_) {
      old_ = std::exchange(young_, {});
    }
    young_.insert(hash);
  }
}

size_t PrefixIndex::matched(std::span<const uint64_t> chain) const {
  size_t n = 0;
  while (n < chain.size() && (young_.contains(chain[n]) || old_.contains(chain[n]))) ++n;
  return n;
}

void PrefixIndex::clear() {
  young_.clear();
  old_.clear();
}

}  // namespace cohort
