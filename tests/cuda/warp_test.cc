// SPDX-License-Identifier: Apache-2.0
// Warp functions against the CUDA C++ Programming Guide (CPG), each test against the section of its
// function's name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/cuda/run_kernel.h"

namespace cohort {
namespace {
using testing::HasSubstr;
constexpr unsigned kAll = 0xffffffffu;

int lane() { return static_cast<int>(threadIdx.x % 32); }

// One value per lane of a warp.
template <class T, class Kernel>
std::vector<T> on_lanes(Kernel kernel) {
  std::vector<T> got(32);
  run_kernel(1, 32, 0, [&] { got[threadIdx.x] = kernel(); });
  return got;
}

// CPG, "Warp Shuffle Functions".
TEST(WarpShuffleTest, IndexWrapsWithinItsGroup) {
  for (const int width : {32, 16, 8, 4, 2, 1})
    for (const int source : {0, 1, 5, 31, 37}) {
      const auto got =
          on_lanes<int>([&] { return __shfl_sync(kAll, 100 + lane(), source, width); });
      for (int l = 0; l < 32; ++l)
        EXPECT_EQ(got[l], 100 + l / width * width + source % width) << l << " " << width;
    }
}

// "If ID - delta is negative ... the lower delta lanes will be unchanged".
TEST(WarpShuffleTest, UpAndDownKeepTheirOwnPastTheEnd) {
  for (const int width : {32, 8})
    for (const unsigned delta : {1u, 3u, 7u}) {
      const auto d = static_cast<int>(delta);
      const auto up =
          on_lanes<float>([&] { return __shfl_up_sync(kAll, 0.5f * lane(), delta, width); });
      const auto down =
          on_lanes<double>([&] { return __shfl_down_sync(kAll, 0.5 * lane(), delta, width); });
      for (int l = 0; l < 32; ++l) {
        EXPECT_EQ(up[l], 0.5f * (l % width >= d ? l - d : l));
        EXPECT_EQ(down[l], 0.5 * (l % width + d < width ? l + d : l));
      }
    }
}

// "If width is less than warpSize ... threads are able to access elements from earlier groups,
// however if they attempt to access elements from later groups their own value will be returned".
TEST(WarpShuffleTest, XorReadsEarlierGroupsOnly) {
  const auto got = on_lanes<unsigned long long>(
      [] { return __shfl_xor_sync(kAll, 0x100000000ull + static_cast<unsigned>(lane()), 8, 8); });
  for (unsigned l = 0; l < 32; ++l) EXPECT_EQ(got[l], 0x100000000ull + ((l & 8) ? l ^ 8 : l));
  const auto whole = on_lanes<int>([] { return __shfl_xor_sync(kAll, lane(), 17); });
  for (int l = 0; l < 32; ++l) EXPECT_EQ(whole[l], l ^ 17);
}

// "If the target thread is inactive, the retrieved value is undefined".
TEST(WarpShuffleTest, InactiveLanesGiveNoNumber) {
  const auto got = on_lanes<float>(
      [] { return lane() < 16 ? __shfl_xor_sync(0xffffu, 1.0f, lane() < 8 ? 16 : 1) : 0.0f; });
  for (int l = 0; l < 8; ++l) EXPECT_TRUE(std::isnan(got[l]));
  for (int l = 8; l < 16; ++l) EXPECT_EQ(got[l], 1.0f);
  std::vector<float> past_the_block(20);
  run_kernel(1, 20, 0, [&] { past_the_block[threadIdx.x] = __shfl_down_sync(kAll, 1.0f, 4); });
  EXPECT_EQ(past_the_block[15], 1.0f);
  EXPECT_TRUE(std::isnan(past_the_block[16]));
}

TEST(WarpShuffleTest, HalvesOfAWarpWorkApart) {
  const auto got = on_lanes<int>([] {
    return lane() < 16 ? __shfl_sync(0xffffu, lane(), 3) : __shfl_sync(0xffff0000u, lane(), 20);
  });
  for (int l = 0; l < 32; ++l) EXPECT_EQ(got[l], l < 16 ? 3 : 20);
}

// "Each calling thread must have its own bit set in the mask and all non-exited threads named in
// mask must execute the same intrinsic with the same mask".
TEST(WarpShuffleTest, ReportsWrongMasks) {
  EXPECT_THAT(mistake_of(1, 32, 0, [] { __shfl_sync(0xffffu, 1, 0); }),
              HasSubstr("mask that leaves it out"));
  EXPECT_THAT(mistake_of(1, 32, 0, [] { __shfl_sync(lane() == 4 ? 0xffu : kAll, 1, 0); }),
              testing::AnyOf(HasSubstr("different masks"), HasSubstr("wait for ever")));
  EXPECT_THAT(mistake_of(1, 32, 0,
                         [] {
                           if (lane() != 9)
                             __shfl_sync(kAll, 1, 0);
                           else
                             __syncthreads();
                         }),
              HasSubstr("31 for a warp collective"));
  EXPECT_THAT(mistake_of(1, 32, 0, [] { __shfl_sync(kAll, 1, 0, 12); }), HasSubstr("power of two"));
}

TEST(WarpShuffleTest, ReportsLanesInDifferentCollectives) {
  const auto text = mistake_of(1, 32, 0, [] {
    if (lane() < 7)
      __shfl_sync(kAll, 1, 0);
    else
      __ballot_sync(kAll, 1);
  });
  EXPECT_THAT(text, HasSubstr("different collectives"));
  EXPECT_THAT(text, HasSubstr("warp_test.cc:"));
}

// "... all non-exited threads named in mask": lanes that have ended are not waited for, whether
// they end before or after the others come.
TEST(WarpShuffleTest, LanesThatEndedAreNotWaitedFor) {
  for (const auto order : {emu::Order::forward, emu::Order::reverse}) {
    emu::options().order = order;
    std::vector<int> got(32);
    run_kernel(1, 32, 0, [&] {
      if (lane() >= 10) return;
      got[threadIdx.x] = __shfl_sync(kAll, lane(), 7);
    });
    emu::options() = {};
    for (int l = 0; l < 32; ++l) EXPECT_EQ(got[l], l < 10 ? 7 : 0);
  }
}

// CPG, "Warp Vote Functions".
TEST(WarpVoteTest, BallotAnyAll) {
  run_kernel(1, 32, 0, [] {
    EXPECT_EQ(__ballot_sync(kAll, lane() % 3 == 0), 0x49249249u);
    EXPECT_TRUE(__any_sync(kAll, lane() == 30));
    EXPECT_FALSE(__any_sync(kAll, 0));
    EXPECT_TRUE(__all_sync(kAll, 2));
    EXPECT_FALSE(__all_sync(kAll, lane() != 30));
    if (lane() < 8) {
      EXPECT_EQ(__ballot_sync(0xffu, 1), 0xffu);
      EXPECT_TRUE(__all_sync(0xffu, 1));
    }
    EXPECT_TRUE(__activemask() >> lane() & 1);
  });
}

TEST(WarpVoteTest, CountsTheThreadsOfAPartialWarp) {
  run_kernel(1, 20, 0, [] {
    EXPECT_EQ(__ballot_sync(kAll, 1), 0xfffffu);
    EXPECT_TRUE(__all_sync(kAll, 1));
  });
}

// CPG, "Warp Match Functions".
TEST(WarpMatchTest, AnyGivesTheLanesOfTheSameValue) {
  run_kernel(1, 32, 0, [] {
    EXPECT_EQ(__match_any_sync(kAll, lane() / 4), 0xfu << (lane() / 4 * 4));
    EXPECT_EQ(__match_any_sync(kAll, 1ull << lane()), 1u << lane());
  });
}

// CPG, "Warp Reduce Functions".
TEST(WarpReduceTest, ReducesIntegers) {
  run_kernel(1, 32, 0, [] {
    const int v = lane() - 16;
    EXPECT_EQ(__reduce_add_sync(kAll, v), -16);
    EXPECT_EQ(__reduce_min_sync(kAll, v), -16);
    EXPECT_EQ(__reduce_max_sync(kAll, v), 15);
    const auto u = static_cast<unsigned>(v);
    EXPECT_EQ(__reduce_min_sync(kAll, u), 0u);
    EXPECT_EQ(__reduce_max_sync(kAll, u), 0xffffffffu);
    EXPECT_EQ(__reduce_and_sync(kAll, u | 6u), 6u);
    EXPECT_EQ(__reduce_or_sync(kAll, 1u << lane()), kAll);
    EXPECT_EQ(__reduce_xor_sync(kAll, 1u << (lane() / 3)), 0x3ffu);  // 3 lanes each, the last 2
  });
}

// CPG, "Synchronization Functions": __syncwarp waits "until all warp lanes named in mask have
// executed a __syncwarp() (with the same mask)", in whichever line.
TEST(WarpSyncTest, LanesMayMeetInDifferentLines) {
  std::vector<int> got(32);
  run_kernel(1, 32, 32 * sizeof(int), [&] {
    auto* shared = gpu::dynamic_shared<int>();
    shared[lane()] = lane();
    if (lane() < 16)
      __syncwarp();
    else
      __syncwarp();
    got[threadIdx.x] = shared[31 - lane()];
  });
  for (int l = 0; l < 32; ++l) EXPECT_EQ(got[l], 31 - l);
}
}  // namespace
}  // namespace cohort
