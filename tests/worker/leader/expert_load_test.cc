// SPDX-License-Identifier: Apache-2.0
#include "worker/expert_load.h"

#include <gtest/gtest.h>

#include <random>

namespace cohort {
namespace {

ExpertLoad sample() { return {3, {{1, {5, 0, 7}}, {4, {0, 1, 0xffffffff}}}}; }

TEST(ExpertLoad, ComesBackAsItWent) {
  const auto decoded = decode_expert_load(encode(sample()));
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  EXPECT_EQ(*decoded, sample());
}

TEST(ExpertLoad, TellsOfLayersInWhichSomethingWasChosen) {
  const ExpertLoad load = expert_load(2, 10, {{}, {0, 0}, {1, 0}, {0, int64_t{1} << 40}});
  EXPECT_EQ(load, (ExpertLoad{2, {{12, {1, 0}}, {13, {0, 0xffffffff}}}}));
}

TEST(ExpertLoad, IsBounded) {
  const std::vector<int64_t> wide(kMostExpertCounts / 2, 1);
  const ExpertLoad load = expert_load(0, 0, {wide, wide, {1}});
  EXPECT_EQ(load.layers.size(), 2u);
  EXPECT_TRUE(decode_expert_load(encode(load)).ok());
  ExpertLoad more = load;
  more.layers.push_back({9, {1}});
  EXPECT_EQ(decode_expert_load(encode(more)).status().code(), Code::kInvalidArgument);
}

TEST(ExpertLoad, DamageIsRefusedOrReadInOneWay) {
  const std::string bytes = encode(sample());
  for (size_t size = 0; size < bytes.size(); size++)
    EXPECT_FALSE(decode_expert_load(bytes.substr(0, size)).ok()) << size;
  EXPECT_FALSE(decode_expert_load(bytes + "x").ok());
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 20000; i++) {
    std::string damaged = bytes;
    for (unsigned k = random() % 3 + 1; k > 0; k--)
      damaged[random() % damaged.size()] = char(random());
    const auto decoded = decode_expert_load(damaged);
    refused += !decoded.ok();
    if (decoded.ok()) {
      ASSERT_EQ(encode(*decoded), damaged);
    }
  }
  EXPECT_GT(refused, 5000);
}

TEST(ExpertLoad, LayersAscend) {
  const auto refused = [](const ExpertLoad& load) {
    return !decode_expert_load(encode(load)).ok();
  };
  EXPECT_TRUE(refused({0, {{4, {1}}, {4, {1}}}}));
  EXPECT_TRUE(refused({0, {{4, {1}}, {3, {1}}}}));
  EXPECT_TRUE(refused({0, {{-1, {1}}}}));
  EXPECT_TRUE(refused({-1, {}}));
  EXPECT_TRUE(refused({0, {{1, {}}}}));
}

}  // namespace
}  // namespace cohort
