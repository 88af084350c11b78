// SPDX-License-Identifier: Apache-2.0
// What the checks of the suite share.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace cohort {

inline constexpr Duration kLong = std::chrono::seconds(30);

inline std::vector<int> all_ranks(const World& world) {
  std::vector<int> ranks(static_cast<size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

inline std::unique_ptr<Communicator> whole_group(World& world, const std::string& label = "all") {
  Result<std::unique_ptr<Communicator>> group = world.group(all_ranks(world), label);
  if (!group.ok()) throw std::runtime_error(group.status().to_string());
  return std::move(*group);
}

// Waits for everybody outside the group, for groups that have failed.
inline void meet(World& world) { EXPECT_TRUE(world.exchange("", kLong).ok()); }

}  // namespace cohort
