// SPDX-License-Identifier: Apache-2.0
// How often the tokens of a dp group chose each expert: what a rank tells the leader of its stage's
// layers, at most once a second. The ranks of a group choose alike, so the first of each tells.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace cohort {

// Counts of one report, over all layers: layers beyond that are not told.
inline constexpr size_t kMostExpertCounts = 1 << 16;

struct LayerExpertLoad {
  int32_t layer = 0;             // of the model
  std::vector<uint32_t> chosen;  // by expert, since the last report
  friend bool operator==(const LayerExpertLoad&, const LayerExpertLoad&) = default;
};

struct ExpertLoad {
  int32_t dp = 0;
  std::vector<LayerExpertLoad> layers;  // ascending, those in which something was chosen
  friend bool operator==(const ExpertLoad&, const ExpertLoad&) = default;
};

// chosen[i][e]: of layer first_layer + i; empty where a layer has no experts.
ExpertLoad expert_load(int dp, int64_t first_layer,
                       const std::vector<std::vector<int64_t>>& chosen);

// Flat little-endian bytes (docs/wire.md). decode is bounded and fuzzed.
std::string encode(const ExpertLoad& load);
Result<ExpertLoad> decode_expert_load(const std::string& bytes);

}  // namespace cohort
