// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/reduction_case.h"

#include <algorithm>
#include <bit>

namespace cohort {

ReductionCase ReductionCase::random(std::mt19937& random, int ranks, int64_t count) {
  ReductionCase test;
  test.count = count;
  test.seed = random();
  const bool even = random() % 3 == 0;
  test.units = even ? ranks * (1 + int(random() % 6)) : 1 + int(random() % 25);
  if (count > 100000) test.units = std::min(test.units, 6);
  std::vector<int> cuts{0, test.units};
  for (int r = 1; r < ranks; r++)
    cuts.push_back(even && test.units % ranks == 0 ? test.units / ranks * r
                                                   : int(random() % uint32_t(test.units + 1)));
  std::sort(cuts.begin(), cuts.end());
  for (int r = 0; r < ranks; r++) test.owned.push_back({cuts[size_t(r)], cuts[size_t(r) + 1]});
  return test;
}

// Exponents differ widely, so that another order of additions gives other bits.
std::vector<float> ReductionCase::unit(int unit) const {
  std::vector<float> values(static_cast<size_t>(count));
  uint64_t state = (seed + uint64_t(unit)) * 0x9e3779b97f4a7c15ull + 1;
  for (float& value : values) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const auto bits = uint32_t(state >> 32);
    const uint32_t exponent = 119 + (bits >> 23 & 15);  // 2^-8 .. 2^7
    value = std::bit_cast<float>((bits & 0x807fffffu) | exponent << 23);
  }
  return values;
}

std::vector<float> ReductionCase::sum(UnitRange range) const {
  std::vector<std::vector<float>> level;
  for (int u = range.begin; u < range.end; u++) level.push_back(unit(u));
  while (level.size() > 1) {
    std::vector<std::vector<float>> above;
    for (size_t i = 0; i < level.size(); i += 2) {
      above.push_back(level[i]);
      if (i + 1 == level.size()) continue;
      for (size_t k = 0; k < above.back().size(); k++) above.back()[k] += level[i + 1][k];
    }
    level = std::move(above);
  }
  return level.empty() ? std::vector<float>(size_t(count), 0.0f) : level[0];
}

std::vector<float> ReductionCase::pieces(const TreePlan& plan, int rank) const {
  std::vector<float> all;
  for (const UnitRange& piece : plan.pieces(rank)) {
    const std::vector<float> values = sum(piece);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace cohort
