// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/worker_replica.h"

#include <thread>
#include <utility>

#include "tests/support/spawn_ranks.h"

namespace cohort::testing {

GpuReplica::GpuReplica(const ReplicaOptions& options) : ranks_(size_t(options.layout.ranks())) {
  spawn_ranks(options.layout.ranks(), [&](World& world) {
    TinyCheckpoint checkpoint(least_model(options.layout.pp));
    ranks_[size_t(world.rank())] = require_ok(Rank::load(world, checkpoint, options, {}));
  });
}

GpuReplica::~GpuReplica() {
  std::vector<std::thread> threads;
  for (auto& rank : ranks_) threads.emplace_back([&rank] { rank.reset(); });
  for (std::thread& thread : threads) thread.join();
}

std::vector<StepPlan> GpuReplica::make_plans(const std::vector<TestRequest>& requests,
                                             size_t steps) {
  std::vector<StepPlan> plans(steps);
  for (size_t i = 0; i < steps; i++) {
    StepPlan& plan = plans[i];
    const int32_t slot = int32_t(i % requests.size()), turn = int32_t(i / requests.size());
    const TestRequest& request = requests[size_t(slot)];
    const int32_t prompt = int32_t(request.prompt.size());
    StepEntry entry{.slot = slot,
                    .start = turn == 0 ? 0 : prompt + turn - 1,
                    .length = turn == 0 ? prompt : 1,
                    .sample = true,
                    .new_blocks = {},
                    .sequence = {}};
    if (turn == 0) {
      entry.sequence = NewSequence{request.prompt, prompt, request.sampling};
      entry.new_blocks = {slot};  // one block is enough for all
    }
    plan.entries.push_back(std::move(entry));
    if (i == 0) plan.frees = std::exchange(used_, {});
    plan.epoch = 1;
    plan.step = ++step_;
    plan.checksum = checksum_ = chain_checksum(checksum_, plan);
  }
  for (size_t slot = 0; slot < requests.size(); slot++) used_.push_back(int32_t(slot));
  return plans;
}

std::vector<SlotResult> GpuReplica::run(const std::vector<TestRequest>& requests, size_t steps,
                                        const Hooks& hooks) {
  const std::vector<StepPlan> plans = make_plans(requests, steps);
  std::vector<SlotResult> results;
  const auto collect = [&](size_t step, int r) {
    if (hooks.before_collect) hooks.before_collect(step, r);
    auto result = require_ok(rank(r).collect());
    if (result) results.insert(results.end(), result->slots.begin(), result->slots.end());
    if (hooks.after_collect) hooks.after_collect(step, r);
  };
  const size_t depth = size_t(rank(0).depth());
  for (size_t step = 0; step < steps + depth; step++)
    for (int i = 0; i < ranks(); i++) {
      const int r = (hooks.first + i) % ranks();
      if (step >= depth && step - depth < steps) collect(step - depth, r);
      if (step >= steps) continue;
      if (hooks.before_launch) hooks.before_launch(step, r);
      require_ok(rank(r).launch(plans[step]));
      if (hooks.after_launch) hooks.after_launch(step, r);
    }
  return results;
}

}  // namespace cohort::testing
