// SPDX-License-Identifier: Apache-2.0
// A step of decoding takes its memory from what was reserved at load: what it still allocates does
// not grow with the layers and stays small.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstdlib>
#include <new>

#include "tests/support/replay.h"
#include "tests/support/spawn_ranks.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/worker/requests.h"
#include "worker/rank.h"

namespace {
std::atomic<int64_t> allocations{0};
}

// Every allocation of this binary is counted.
void* operator new(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace cohort::testing {
namespace {

// Of one step, after a few.
int64_t allocations_per_step(int64_t layers) {
  int64_t counted = 0;
  spawn_ranks(1, [&](World& world) {
    TinyModel model = tiny_model(DType::q4_1);
    model.config.layers = layers;
    TinyCheckpoint checkpoint(model);
    const auto rank = require_ok(Rank::load(world, checkpoint, tiny_options(), {}));
    std::vector<TestRequest> requests;
    for (uint32_t i = 0; i < 4; i++) requests.push_back({some_tokens(3, i), 12, greedy(0), 0});
    const auto plans = make_schedule(requests, rank->limits(), {}).plans;
    for (size_t i = 0; i < plans.size(); i++) {
      const int64_t before = allocations;
      const auto result = rank->execute(plans[i]);
      if (i == 9) counted = allocations - before;
      require_ok(result.status());
    }
  });
  return counted;
}

// Of one step in two micro-batches, on two ranks together.
int64_t allocations_per_split_step(int64_t layers) {
  int64_t counted = 0;
  std::barrier all(2);
  spawn_ranks(2, [&](World& world) {
    TinyModel model = tiny_model(DType::q4_1);
    model.config.layers = layers;
    TinyCheckpoint checkpoint(model);
    const auto rank = require_ok(Rank::load(world, checkpoint, tiny_options(2), {}));
    std::vector<TestRequest> requests;
    for (uint32_t i = 0; i < 4; i++) requests.push_back({some_tokens(3, i), 12, greedy(0), 0});
    auto plans = make_schedule(requests, rank->limits(), {}).plans;
    for (StepPlan& plan : plans) plan.micro_batches = 2;
    chain(plans);
    for (size_t i = 0; i < plans.size(); i++) {
      all.arrive_and_wait();
      const int64_t before = allocations;
      all.arrive_and_wait();
      const auto result = rank->execute(plans[i]);
      all.arrive_and_wait();
      if (i == 9 && world.rank() == 0) counted = allocations - before;
      all.arrive_and_wait();
      require_ok(result.status());
    }
  });
  return counted;
}

TEST(AllocationsTest, AStepInMicroBatchesAllocatesLittleAndNothingPerLayer) {
  const int64_t few = allocations_per_split_step(2), many = allocations_per_split_step(9);
  RecordProperty("per_step", int(few));
  EXPECT_EQ(few, many);
  EXPECT_LE(few, 2 * 2 * 40);
}

TEST(AllocationsTest, AStepAllocatesLittleAndNothingPerLayer) {
  const int64_t few = allocations_per_step(2), many = allocations_per_step(9);
  RecordProperty("per_step", int(few));
  EXPECT_EQ(few, many);
  EXPECT_LE(few, 40);
}

}  // namespace
}  // namespace cohort::testing
