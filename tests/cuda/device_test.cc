// SPDX-License-Identifier: Apache-2.0
// The emulated device against the CUDA C++ Programming Guide (CPG): built-in variables, limits of
// launches, the order of threads, shared memory, barriers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/cuda/run_kernel.h"

namespace cohort {
namespace {
using testing::AllOf;
using testing::HasSubstr;

// Every order in which the emulation resumes threads, with one OS thread and with three.
class OrderTest : public testing::TestWithParam<std::tuple<emu::Order, unsigned>> {
 protected:
  OrderTest() {
    emu::options().order = std::get<0>(GetParam());
    emu::options().workers = std::get<1>(GetParam());
  }
  ~OrderTest() override { emu::options() = {}; }
};
INSTANTIATE_TEST_SUITE_P(All, OrderTest,
                         testing::Combine(testing::Values(emu::Order::forward, emu::Order::reverse,
                                                          emu::Order::random),
                                          testing::Values(1u, 3u)));

// CPG, "Thread Hierarchy" and "Built-in Variables": the thread of index (x, y, z) of a block of
// size (Dx, Dy) has the ID x + y Dx + z Dx Dy; every block of the grid runs once.
TEST_P(OrderTest, EveryThreadOfEveryBlockRunsOnce) {
  const dim3 grid(3, 2, 2), block(5, 3, 4);
  std::vector<std::atomic<int>> runs(12 * 60);
  run_kernel(grid, block, 0, [&] {
    EXPECT_EQ(gridDim.x, 3u);
    EXPECT_EQ(gridDim.z, 2u);
    EXPECT_EQ(blockDim.y, 3u);
    EXPECT_EQ(blockDim.z, 4u);
    const unsigned thread = threadIdx.x + threadIdx.y * 5 + threadIdx.z * 15;
    EXPECT_EQ(emu::lane_id(), thread % 32);
    ++runs[(blockIdx.x + blockIdx.y * 3 + blockIdx.z * 6) * 60 + thread];
  });
  for (const auto& n : runs) EXPECT_EQ(n, 1);
}

// CPG, "Synchronization Functions": __syncthreads waits until all threads have reached it and what
// they wrote before is visible to all.
TEST_P(OrderTest, ReducesOverABlock) {
  std::vector<float> sums(7);
  run_kernel(7, 256, 256 * sizeof(float), [&] {
    auto* shared = gpu::dynamic_shared<float>();
    shared[threadIdx.x] = static_cast<float>(threadIdx.x + blockIdx.x);
    for (unsigned half = 128; half > 0; half /= 2) {
      __syncthreads();
      if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = shared[0];
  });
  for (unsigned b = 0; b < 7; ++b) EXPECT_EQ(sums[b], static_cast<float>(255 * 256 / 2 + 256 * b));
}

std::vector<unsigned> order_of_threads(emu::Options options) {
  emu::options() = options;
  std::vector<unsigned> order;
  run_kernel(1, 64, 0, [&] { order.push_back(threadIdx.x); });
  emu::options() = {};
  return order;
}

TEST(OrdersTest, DifferAndRepeat) {
  const auto forward = order_of_threads({});
  EXPECT_TRUE(std::ranges::is_sorted(forward));
  const auto reverse = order_of_threads({.order = emu::Order::reverse});
  EXPECT_TRUE(std::ranges::is_sorted(reverse, std::greater<>{}));
  const emu::Options random{.order = emu::Order::random, .seed = 3};
  const auto shuffled = order_of_threads(random);
  EXPECT_FALSE(std::ranges::is_sorted(shuffled));
  EXPECT_EQ(order_of_threads(random), shuffled);
  EXPECT_NE(order_of_threads({.order = emu::Order::random, .seed = 4}), shuffled);
}

__global__ void empty_kernel(int) {}

cudaError_t launch_error(dim3 grid, dim3 block, std::size_t smem = 0) {
  return emu::check_launch(reinterpret_cast<const void*>(&empty_kernel), grid, block, smem);
}

// CPG, "Technical Specifications per Compute Capability".
TEST(LaunchTest, KeepsTheLimitsOfCuda) {
  EXPECT_EQ(launch_error(1, 1024), cudaSuccess);
  EXPECT_EQ(launch_error(1, dim3(8, 8, 16)), cudaSuccess);
  EXPECT_EQ(launch_error(1, dim3(1, 1, 64)), cudaSuccess);
  EXPECT_EQ(launch_error(dim3(0x7fffffff, 65535, 65535), 1), cudaSuccess);
  const std::array<std::array<dim3, 2>, 9> wrong{{{1, 1025},
                                                  {1, dim3(33, 32, 1)},
                                                  {1, dim3(1, 1, 65)},
                                                  {1, dim3(0, 1, 1)},
                                                  {1, dim3(1, 1, 0)},
                                                  {dim3(0, 1, 1), 1},
                                                  {dim3(1, 0, 1), 1},
                                                  {dim3(1, 65536, 1), 1},
                                                  {dim3(1, 1, 65536), 1}}};
  for (const auto& [grid, block] : wrong)
    EXPECT_EQ(launch_error(grid, block), cudaErrorInvalidConfiguration)
        << grid.x << " " << grid.y << " " << grid.z << " / " << block.x;
}

// CPG, "Shared Memory" of compute capability 8.x and 9.0: more than 48 KiB only after an opt-in,
// up to 227 KiB.
TEST(LaunchTest, MoreThan48KiBOfSharedMemoryMustBeAllowed) {
  EXPECT_EQ(launch_error(1, 32, 48 << 10), cudaSuccess);
  EXPECT_EQ(launch_error(1, 32, (48 << 10) + 1), cudaErrorInvalidValue);
  const auto* kernel = reinterpret_cast<const void*>(&empty_kernel);
  EXPECT_EQ(emu::allow_shared(kernel, (227 << 10) + 1), cudaErrorInvalidValue);
  EXPECT_EQ(emu::allow_shared(kernel, 100 << 10), cudaSuccess);
  EXPECT_EQ(launch_error(1, 32, 100 << 10), cudaSuccess);
  EXPECT_EQ(launch_error(1, 32, (100 << 10) + 1), cudaErrorInvalidValue);
}

// CPG, "__shared__": a variable has the lifetime of its block and no initial value.
TEST(SharedMemoryTest, StartsEveryBlockFullOfNan) {
  std::vector<int> numbers(3);
  run_kernel(3, 32, 128 * sizeof(float), [&] {
    auto* dynamic = gpu::dynamic_shared<float>();
    GPU_SHARED(__nv_bfloat16, array, [64]);
    for (unsigned i = threadIdx.x; i < 128; i += 32) {
      const bool poisoned = std::isnan(dynamic[i]) && std::isnan(gpu::to_float(array[i / 2]));
      if (!poisoned) ++numbers[blockIdx.x];
    }
    __syncthreads();
    dynamic[threadIdx.x] = 1.0f;
    array[threadIdx.x] = gpu::from_float<__nv_bfloat16>(1.0f);
  });
  EXPECT_EQ(numbers, std::vector<int>(3, 0));
}

template <int Which>
float* array_of_template() {
  GPU_SHARED(float, array, [4]);
  return array;
}
TEST(SharedMemoryTest, EachVariableIsOneArrayOfTheBlock) {
  std::set<const void*> first, second, other;
  run_kernel(1, 64, 0, [&] {
    GPU_SHARED(float, array, [4]);
    first.insert(&array);
    second.insert(array_of_template<0>());
    other.insert(array_of_template<1>());
    array[threadIdx.x % 4] = 0;
  });
  EXPECT_EQ(first.size(), 1u);
  EXPECT_EQ(second.size(), 1u);
  EXPECT_EQ(other.size(), 1u);
  EXPECT_NE(*first.begin(), *second.begin());
  EXPECT_NE(*second.begin(), *other.begin());
}

TEST(SharedMemoryTest, IsAlignedTo128Bytes) {
  run_kernel(1, 1, 16, [] {
    GPU_SHARED(float, array, [3]);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(gpu::dynamic_shared<char>()) % 128, 0u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&array) % 128, 0u);
  });
}

TEST(SharedMemoryTest, StaticArraysEndAt48KiB) {
  const auto use = [] {
    GPU_SHARED(char, first, [40 << 10]);
    GPU_SHARED(char, second, [(8 << 10) + 1]);
    first[0] = second[0] = 0;
  };
  EXPECT_THAT(mistake_of(1, 1, 0, use), HasSubstr("exceed 48 KiB"));
}

// CPG, "Synchronization Functions": "__syncthreads() is allowed in conditional code but only if the
// conditional evaluates identically across the entire thread block".
TEST(BarrierTest, DivergentBarriersAreReported) {
  const auto text = mistake_of(dim3(1, 2), 64, 0, [] {
    if (threadIdx.x < 32)
      __syncthreads();
    else
      __syncthreads();
  });
  EXPECT_THAT(text, AllOf(HasSubstr("different __syncthreads"), HasSubstr("device_test.cc:"),
                          HasSubstr("block (0,0,0)")));
}

TEST(BarrierTest, AThreadThatWaitsElsewhereIsADeadlock) {
  const auto text = mistake_of(1, 64, 0, [] {
    if (threadIdx.x < 40) __syncthreads();
    if (threadIdx.x >= 32) __shfl_sync(0xffffffffu, 1, 0);
  });
  EXPECT_THAT(text, AllOf(HasSubstr("40 for a barrier at"), HasSubstr("24 for a warp collective"),
                          HasSubstr("device_test.cc:")));
}

// PTX ISA, "bar": a barrier is complete when all threads that have not exited are there.
TEST(BarrierTest, ThreadsThatEndedAreNotWaitedFor) {
  std::vector<int> after(64);
  run_kernel(1, 64, 0, [&] {
    if (threadIdx.x >= 20) return;
    __syncthreads();
    after[threadIdx.x] = 1;
  });
  EXPECT_EQ(std::ranges::count(after, 1), 20);
}

// CPG, "Synchronization Functions": __syncthreads_count, _and and _or evaluate a predicate of all
// threads of the block.
TEST(BarrierTest, CountsPredicates) {
  for (const unsigned threshold : {0u, 1u, 50u, 96u}) {
    run_kernel(1, 96, 0, [&] {
      const bool mine = threadIdx.x < threshold;
      EXPECT_EQ(__syncthreads_count(mine), static_cast<int>(threshold));
      EXPECT_EQ(__syncthreads_or(mine) != 0, threshold > 0);
      EXPECT_EQ(__syncthreads_and(mine) != 0, threshold == 96);
    });
  }
}

// PTX ISA, "bar": each of 16 barriers is a resource of its own; b is the number of threads, a
// multiple of the warp size.
TEST(BarrierTest, NamedBarriersJoinSomeWarps) {
  std::vector<int> seen(128);
  run_kernel(1, 128, 128 * sizeof(int), [&] {
    auto* shared = gpu::dynamic_shared<int>();
    const unsigned half = threadIdx.x / 64;
    shared[threadIdx.x] = static_cast<int>(threadIdx.x);
    gpu::named_barrier(1 + static_cast<int>(half), 64);
    seen[threadIdx.x] = shared[threadIdx.x ^ 63];
  });
  for (int i = 0; i < 128; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], i ^ 63);
  EXPECT_THAT(mistake_of(1, 64, 0, [] { gpu::named_barrier(1, 33); }), HasSubstr("multiple of 32"));
  EXPECT_THAT(mistake_of(1, 64, 0, [] { gpu::named_barrier(16, 64); }), HasSubstr("0 to 15"));
  EXPECT_THAT(mistake_of(1, 64, 0, [] { gpu::named_barrier(1, 96); }), HasSubstr("wait for ever"));
}

// After a mistake the device works on.
TEST(BarrierTest, AMistakeEndsOnlyItsKernel) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_NE(mistake_of(4, 64, 64,
                         [] {
                           if (threadIdx.x == 3)
                             __syncthreads();
                           else
                             __shfl_sync(~0u, 1, 1);
                         }),
              "");
    std::atomic<int> runs = 0;
    run_kernel(4, 64, 64, [&] {
      __syncthreads();
      ++runs;
    });
    EXPECT_EQ(runs, 256);
  }
}

TEST(BarrierTest, AMistakeOnAnotherOsThreadIsReported) {
  emu::options().workers = 3;
  const auto text = mistake_of(9, 64, 0, [] {
    if (blockIdx.x == 7 && threadIdx.x == 0) __shfl_sync(1u << 5, 1, 1);
  });
  emu::options() = {};
  EXPECT_THAT(text, HasSubstr("block (7,0,0)"));
}
}  // namespace
}  // namespace cohort
