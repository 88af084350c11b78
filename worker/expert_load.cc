// SPDX-License-Identifier: Apache-2.0
#include "worker/expert_load.h"

#include <algorithm>
#include <limits>

#include "base/byte_io.h"

namespace cohort {
namespace {

constexpr uint32_t kMagic = 0x31455343;  // "CSE1"
constexpr size_t kLeastLayerBytes = 2 * 4 + 4;

bool chosen_at_all(const std::vector<int64_t>& counts) {
  return std::ranges::any_of(counts, [](int64_t n) { return n > 0; });
}

LayerExpertLoad layer_load(int64_t layer, const std::vector<int64_t>& counts) {
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  LayerExpertLoad load{.layer = int32_t(layer), .chosen = {}};
  for (const int64_t n : counts) load.chosen.push_back(uint32_t(std::clamp<int64_t>(n, 0, kMost)));
  return load;
}

}  // namespace

ExpertLoad expert_load(int dp, int64_t first_layer,
                       const std::vector<std::vector<int64_t>>& chosen) {
  ExpertLoad load{.dp = dp, .layers = {}};
  size_t counts = 0;
  for (size_t i = 0; i < chosen.size(); i++) {
    counts += chosen[i].size();
    if (counts > kMostExpertCounts) break;
    if (chosen_at_all(chosen[i]))
      load.layers.push_back(layer_load(first_layer + int64_t(i), chosen[i]));
  }
  return load;
}

std::string encode(const ExpertLoad& load) {
  ByteWriter out;
  out.put(kMagic);
  out.put(load.dp);
  out.put(static_cast<uint32_t>(load.layers.size()));
  for (const LayerExpertLoad& layer : load.layers) {
    out.put(layer.layer);
    out.put_all(layer.chosen);
  }
  return out.take();
}

Result<ExpertLoad> decode_expert_load(const std::string& bytes) {
  ByteReader in(bytes);
  if (in.get<uint32_t>() != kMagic)
    return invalid_argument("a report of experts' load does not begin as one");
  ExpertLoad load;
  load.dp = in.get<int32_t>();
  if (load.dp < 0) in.fail();
  const uint32_t layers = in.get_count(kLeastLayerBytes);
  size_t counts = 0;
  int32_t last = -1;
  for (uint32_t i = 0; i < layers && in.ok(); i++) {
    LayerExpertLoad layer;
    layer.layer = in.get<int32_t>();
    layer.chosen = in.get_all<uint32_t>();
    counts += layer.chosen.size();
    if (layer.layer <= last || layer.chosen.empty() || counts > kMostExpertCounts) in.fail();
    last = layer.layer;
    load.layers.push_back(std::move(layer));
  }
  if (!in.done()) return invalid_argument("a report of experts' load is damaged");
  return load;
}

}  // namespace cohort
