// SPDX-License-Identifier: Apache-2.0
// cp.async and atomics of the emulated device, against PTX ISA and the CUDA C++ Programming Guide
// (CPG).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/cuda/run_kernel.h"

namespace cohort {
namespace {
using testing::AllOf;
using testing::HasSubstr;

struct alignas(16) Four {
  float v[4];
};
const Four kSource[4] = {{{1, 1, 1, 1}}, {{2, 2, 2, 2}}, {{3, 3, 3, 3}}, {{4, 4, 4, 4}}};

// PTX ISA, "cp.async": "there is no ordering guarantee between ... cp.async operations and any
// other operation" before a wait: the destination holds nothing that can be relied on.
TEST(CpAsyncTest, NothingIsThereBeforeTheWait) {
  run_kernel(1, 1, sizeof(Four), [] {
    auto* shared = gpu::dynamic_shared<Four>();
    shared->v[2] = 7;
    gpu::cp_async16(shared, &kSource[0]);
    EXPECT_TRUE(std::isnan(shared->v[2]));
    gpu::cp_async_commit();
    EXPECT_TRUE(std::isnan(shared->v[2]));
    gpu::cp_async_wait<0>();
    EXPECT_EQ(shared->v[2], 1.0f);
  });
}

// PTX ISA, "cp.async.wait_group": waits until "only N or fewer of the most recent cp.async-groups
// are pending and all the prior cp.async-groups committed by the executing threads are complete".
TEST(CpAsyncTest, WaitsForAllButTheLastGroups) {
  run_kernel(1, 1, 4 * sizeof(Four), [] {
    auto* shared = gpu::dynamic_shared<Four>();
    const auto landed = [&] {
      int n = 0;
      for (int i = 0; i < 4; ++i) n += shared[i].v[0] == static_cast<float>(i + 1);
      return n;
    };
    gpu::cp_async16(&shared[0], &kSource[0]);
    gpu::cp_async16(&shared[1], &kSource[1]);
    gpu::cp_async_commit();
    gpu::cp_async16(&shared[2], &kSource[2]);
    gpu::cp_async_commit();
    gpu::cp_async16(&shared[3], &kSource[3]);
    gpu::cp_async_wait<2>();
    EXPECT_EQ(landed(), 0);
    gpu::cp_async_wait<1>();
    EXPECT_EQ(landed(), 2);
    gpu::cp_async_wait<0>();  // the last copy is in no group yet
    EXPECT_EQ(landed(), 3);
    gpu::cp_async_commit();
    gpu::cp_async_wait<0>();
    EXPECT_EQ(landed(), 4);
  });
}

// PTX ISA, "cp.async.commit_group": "If there are no uncommitted cp.async operations then
// cp.async.commit_group results in an empty cp.async-group".
TEST(CpAsyncTest, EmptyGroupsCount) {
  run_kernel(1, 1, sizeof(Four), [] {
    auto* shared = gpu::dynamic_shared<Four>();
    gpu::cp_async16(shared, &kSource[3]);
    gpu::cp_async_commit();
    gpu::cp_async_commit();
    gpu::cp_async_wait<1>();
    EXPECT_EQ(shared->v[0], 4.0f);
  });
}

// PTX ISA, "cp.async": with src-size less than cp-size "the remaining bytes in the destination are
// filled with zeros".
TEST(CpAsyncTest, FillsWithZerosWithoutReading) {
  run_kernel(1, 1, sizeof(Four), [] {
    auto* shared = gpu::dynamic_shared<Four>();
    gpu::cp_async16(shared, nullptr, false);
    gpu::cp_async_commit();
    gpu::cp_async_wait<0>();
    for (const float v : shared->v) EXPECT_EQ(v, 0.0f);
  });
}

// PTX ISA, "cp.async.wait_group": of the executing thread. Others need a barrier behind it.
TEST(CpAsyncTest, EachThreadWaitsForItsOwn) {
  std::vector<int> missing(32);
  run_kernel(1, 32, 32 * sizeof(Four), [&] {
    auto* shared = gpu::dynamic_shared<Four>();
    gpu::cp_async16(&shared[threadIdx.x], &kSource[0]);
    gpu::cp_async_commit();
    if (threadIdx.x != 5) gpu::cp_async_wait<0>();
    __syncthreads();
    for (int i = 0; i < 32; ++i) missing[threadIdx.x] += std::isnan(shared[i].v[0]);
    __syncthreads();
    if (threadIdx.x == 5) gpu::cp_async_wait<0>();
  });
  EXPECT_EQ(missing, std::vector<int>(32, 1));
}

TEST(CpAsyncTest, ReportsCopiesThatNobodyWaitsFor) {
  const auto text = mistake_of(1, 32, 64, [] {
    if (threadIdx.x != 3) return;
    gpu::cp_async16(gpu::dynamic_shared<char>(), &kSource[0]);
    gpu::cp_async_commit();
  });
  EXPECT_THAT(text, AllOf(HasSubstr("did not wait for"), HasSubstr("thread (3,0,0)"),
                          HasSubstr("memory_test.cc:")));
}

// PTX ISA, "cp.async": addresses are aligned to cp-size; the destination is in .shared.
TEST(CpAsyncTest, ReportsBadAddresses) {
  const auto copy = [](std::size_t to, std::size_t from) {
    return mistake_of(1, 1, 64, [=] {
      gpu::cp_async16(gpu::dynamic_shared<char>() + to,
                      reinterpret_cast<const char*>(kSource) + from);
      gpu::cp_async_commit();
      gpu::cp_async_wait<0>();
    });
  };
  EXPECT_EQ(copy(48, 48), "");
  EXPECT_THAT(copy(8, 0), HasSubstr("multiples of 16"));
  EXPECT_THAT(copy(0, 4), HasSubstr("multiples of 16"));
  EXPECT_THAT(copy(64, 0), HasSubstr("outside of the block's shared memory"));
}

// CPG, "Atomic Functions": each returns the old value.
TEST(AtomicsTest, ReturnTheOldValue) {
  run_kernel(1, 1, 0, [] {
    int i = 5;
    EXPECT_EQ(atomicAdd(&i, 3), 5);
    EXPECT_EQ(atomicSub(&i, 10), 8);
    EXPECT_EQ(atomicMax(&i, -7), -2);
    EXPECT_EQ(atomicMin(&i, -3), -2);
    EXPECT_EQ(atomicExch(&i, 12), -3);
    EXPECT_EQ(atomicCAS(&i, 11, 1), 12);
    EXPECT_EQ(atomicCAS(&i, 12, 6), 12);
    EXPECT_EQ(atomicOr(&i, 1), 6);
    EXPECT_EQ(atomicAnd(&i, 3), 7);
    EXPECT_EQ(i, 3);
    unsigned u = 6;  // atomicInc: ((old >= val) ? 0 : (old + 1))
    EXPECT_EQ(atomicInc(&u, 7), 6u);
    EXPECT_EQ(atomicInc(&u, 7), 7u);
    EXPECT_EQ(u, 0u);
    unsigned long long l = 1ull << 40;
    EXPECT_EQ(atomicAdd(&l, 1), 1ull << 40);
    EXPECT_EQ(atomicMax(&l, 1ull << 63), (1ull << 40) + 1);
    EXPECT_EQ(l, 1ull << 63);
  });
}

TEST(AtomicsTest, CountInGlobalAndSharedMemory) {
  emu::options() = {.order = emu::Order::random, .seed = 2, .workers = 3};
  unsigned long long total = 0;
  unsigned largest = 0;
  run_kernel(50, 64, 0, [&] {
    GPU_SHARED(unsigned, count, [1]);
    if (threadIdx.x == 0) count[0] = 0;
    __syncthreads();
    atomicAdd(&count[0], threadIdx.x);
    atomicMax(&largest, blockIdx.x * 64 + threadIdx.x);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(&total, count[0]);
  });
  emu::options() = {};
  EXPECT_EQ(total, 50ull * 63 * 64 / 2);
  EXPECT_EQ(largest, 50u * 64 - 1);
}

#if defined(__SANITIZE_ADDRESS__)
using SharedMemoryDeathTest = testing::Test;

// Each thread's access past the end of shared memory is seen, by one byte.
TEST(SharedMemoryDeathTest, OverrunsOfDynamicMemoryAreSeen) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto write = [](std::size_t at) {
    run_kernel(1, 1, 100, [=] { gpu::dynamic_shared<volatile char>()[at] = 1; });
  };
  write(99);
  EXPECT_DEATH(write(100), "heap-buffer-overflow");
}
TEST(SharedMemoryDeathTest, OverrunsOfStaticArraysAreSeen) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto write = [](std::size_t at) {
    run_kernel(1, 1, 0, [=] {
      GPU_SHARED(volatile char, array, [20]);
      volatile char* first = &array[0];
      first[at] = 1;
    });
  };
  write(19);
  EXPECT_DEATH(write(20), "heap-buffer-overflow");
}
#endif
}  // namespace
}  // namespace cohort
