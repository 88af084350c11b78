// SPDX-License-Identifier: Apache-2.0
#include "tests/support/replay.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "base/check.h"
#include "kernels/kv_layout.h"
#include "tests/support/spawn_ranks.h"
#include "worker/rank.h"

namespace cohort::testing {
namespace {

struct Running {
  size_t request;
  int32_t slot;
  int32_t computed = 0;
  int sampled = 0;
  std::vector<int32_t> blocks;
};

class Scheduler {
 public:
  Scheduler(const std::vector<TestRequest>& requests, const StepLimits& limits,
            const ScheduleOptions& options)
      : requests_(requests), limits_(limits), options_(options) {
    for (int32_t i = 0; i < limits.max_slots; i++)
      free_slots_.push_back((i + options.first_slot) % limits.max_slots);
    for (int32_t b = 0; b < limits.blocks; b++) free_blocks_.push_back(b);
    if (!options.descending_blocks) std::reverse(free_blocks_.begin(), free_blocks_.end());
  }

  Schedule run() {
    for (size_t i = 0; i < requests_.size(); i++) waiting_.push_back(i);
    while (!waiting_.empty() || !running_.empty()) step();
    chain(schedule_.plans);
    return std::move(schedule_);
  }

 private:
  void step() {
    StepPlan plan;
    plan.epoch = 1;
    plan.frees = std::exchange(frees_, {});
    admit();
    int32_t rows = limits_.max_rows;
    for (Running& r : running_) add_entry(plan, r, rows);
    std::erase_if(running_, [&](const Running& r) {
      if (r.sampled < requests_[r.request].outputs) return false;
      frees_.push_back(r.slot);
      free_slots_.push_back(r.slot);
      free_blocks_.insert(free_blocks_.end(), r.blocks.begin(), r.blocks.end());
      return true;
    });
    schedule_.plans.push_back(std::move(plan));
  }

  void admit() {
    const int now = int(schedule_.plans.size());
    std::erase_if(waiting_, [&](size_t request) {
      if (requests_[request].arrival > now || free_slots_.empty()) return false;
      running_.push_back({.request = request, .slot = free_slots_.front(), .blocks = {}});
      free_slots_.erase(free_slots_.begin());
      return true;
    });
  }

  void add_entry(StepPlan& plan, Running& r, int32_t& rows) {
    const TestRequest& request = requests_[r.request];
    const int32_t known = int32_t(request.prompt.size()) + r.sampled;
    const int32_t length = std::min({known - r.computed, options_.chunk, rows});
    if (length <= 0) return;
    rows -= length;
    StepEntry entry{.slot = r.slot,
                    .start = r.computed,
                    .length = length,
                    .sample = false,
                    .new_blocks = {},
                    .sequence = {}};
    if (r.computed == 0)
      entry.sequence =
          NewSequence{request.prompt, int32_t(request.prompt.size()), request.sampling};
    r.computed += length;
    while (int64_t(r.blocks.size()) * kBlockTokens < r.computed) {
      COHORT_CHECK(!free_blocks_.empty());
      r.blocks.push_back(free_blocks_.back());
      entry.new_blocks.push_back(free_blocks_.back());
      free_blocks_.pop_back();
    }
    entry.sample = r.computed == known;
    if (entry.sample) {
      schedule_.samples.push_back({schedule_.plans.size() + 1, r.slot, r.request});
      r.sampled++;
    }
    plan.entries.push_back(std::move(entry));
  }

  const std::vector<TestRequest>& requests_;
  const StepLimits& limits_;
  const ScheduleOptions& options_;
  std::vector<size_t> waiting_;
  std::vector<Running> running_;
  std::vector<int32_t> frees_, free_slots_, free_blocks_;
  Schedule schedule_;
};

// What several dp groups do, each by a schedule of its own, in common plans: slots of group g come
// after those of the groups before it. owners[g]: numbers of its requests.
Schedule merge(std::vector<Schedule> groups, const std::vector<std::vector<size_t>>& owners,
               int32_t slots) {
  Schedule all;
  for (size_t g = 0; g < groups.size(); g++) {
    const int32_t first = int32_t(g) * slots;
    for (size_t i = 0; i < groups[g].plans.size(); i++) {
      StepPlan& part = groups[g].plans[i];
      if (i == all.plans.size()) all.plans.push_back({});
      StepPlan& plan = all.plans[i];
      plan.epoch = 1;
      for (const int32_t slot : part.frees) plan.frees.push_back(first + slot);
      for (StepEntry& entry : part.entries) {
        entry.slot += first;
        plan.entries.push_back(std::move(entry));
      }
    }
    for (const Schedule::Sample& s : groups[g].samples)
      all.samples.push_back({s.step, first + s.slot, owners[g][s.request]});
  }
  chain(all.plans);
  return all;
}

// Requests are dealt out to the groups in turn.
Schedule schedule_groups(const std::vector<TestRequest>& requests, const StepLimits& limits, int dp,
                         const ScheduleOptions& options) {
  std::vector<Schedule> groups;
  std::vector<std::vector<size_t>> owners(static_cast<size_t>(dp));
  for (size_t i = 0; i < requests.size(); i++) owners[i % size_t(dp)].push_back(i);
  for (const auto& mine : owners) {
    std::vector<TestRequest> part;
    for (const size_t i : mine) part.push_back(requests[i]);
    groups.push_back(make_schedule(part, limits, options));
  }
  return merge(std::move(groups), owners, limits.max_slots);
}

}  // namespace

Schedule make_schedule(const std::vector<TestRequest>& requests, const StepLimits& limits,
                       const ScheduleOptions& options) {
  return Scheduler(requests, limits, options).run();
}

void chain(std::vector<StepPlan>& plans) {
  uint64_t checksum = 0, step = 0;
  for (StepPlan& plan : plans) {
    plan.step = ++step;
    plan.checksum = checksum = chain_checksum(checksum, plan);
  }
}

std::vector<StepResult> run_plans(const OpenCheckpoint& open, const ReplicaOptions& options,
                                  const std::vector<StepPlan>& plans, Duration deadline) {
  std::vector<StepResult> results;
  std::mutex mutex;  // every dp group has a sampler
  const auto body = [&](World& world) {
    const auto checkpoint = open();
    const auto rank = require_ok(Rank::load(world, *checkpoint, options, {}));
    int ahead = 0;
    const auto collect = [&] {
      auto result = require_ok(rank->collect());
      const std::lock_guard lock(mutex);
      if (result) results.push_back(std::move(*result));
      ahead--;
    };
    for (const StepPlan& plan : plans) {
      require_ok(rank->launch(plan));
      if (++ahead == rank->depth()) collect();
    }
    while (ahead > 0) collect();
  };
  spawn_ranks(options.layout.ranks(), body, deadline);
  COHORT_CHECK_EQ(results.size(), plans.size() * size_t(options.layout.dp));
  return results;
}

std::vector<TestOutput> generate(const OpenCheckpoint& open, const ReplicaOptions& options,
                                 const std::vector<TestRequest>& requests,
                                 const ScheduleOptions& schedule_options) {
  StepLimits limits = options.limits;
  limits.blocks = limits.max_slots * ((limits.max_context + kBlockTokens - 1) / kBlockTokens);
  Schedule schedule = schedule_groups(requests, limits, options.layout.dp, schedule_options);
  if (schedule_options.change) {
    schedule_options.change(schedule.plans);
    chain(schedule.plans);
  }
  const std::vector<StepResult> results =
      run_plans(open, options, schedule.plans, schedule_options.deadline);
  std::map<std::pair<uint64_t, int32_t>, size_t> owner;
  for (const auto& sample : schedule.samples) owner[{sample.step, sample.slot}] = sample.request;
  std::vector<TestOutput> outputs(requests.size());
  for (const StepResult& result : results)
    for (const SlotResult& slot : result.slots) {
      const auto found = owner.find({result.step, slot.slot});
      if (found == owner.end()) continue;
      TestOutput& output = outputs[found->second];
      output.tokens.push_back(slot.sampled);
      if (output.error.empty()) output.error = slot.error;
    }
  return outputs;
}

ReplicaOptions tiny_options(int tp, int pp, std::vector<int> shares) {
  ReplicaOptions options;
  options.layout = {.tp = tp, .pp = pp, .shares = std::move(shares), .stage_layers = {}};
  options.isa = Isa::portable;
  options.limits = {.max_slots = 6, .max_rows = 48, .max_context = 96, .blocks = 0, .in_flight = 0};
  options.start_timeout = std::chrono::seconds(20);
  return options;
}

}  // namespace cohort::testing
