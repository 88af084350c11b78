// SPDX-License-Identifier: Apache-2.0
// A schedule made beforehand and run on any layout: the ranks need no leader to execute plans, and
// plans name tokens that are not sampled yet.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "model/checkpoint.h"
#include "worker/replica_options.h"
#include "worker/step_plan.h"

namespace cohort::testing {

struct TestRequest {
  std::vector<int32_t> prompt;
  int outputs = 1;
  SamplingParams sampling;
  int arrival = 0;  // number of the step before which it comes
};

// What came of it.
struct TestOutput {
  std::vector<SampledToken> tokens;
  std::string error;  // the first
  friend bool operator==(const TestOutput&, const TestOutput&) = default;
};

struct Schedule {
  std::vector<StepPlan> plans;
  struct Sample {
    uint64_t step;
    int32_t slot;
    size_t request;
  };
  std::vector<Sample> samples;
};

// Continuous batching: every step has a chunk of each request that is not done, as long as rows are
// free. Slots and blocks are recycled at once. first_slot and block_stride only change who sits
// where.
struct ScheduleOptions {
  int chunk = 1 << 20;
  int32_t first_slot = 0;
  bool descending_blocks = false;
  // For `generate`: what else the plans say.
  std::function<void(std::vector<StepPlan>&)> change = {};
  Duration deadline = std::chrono::seconds(100);  // of all steps together
};
Schedule make_schedule(const std::vector<TestRequest>& requests, const StepLimits& limits,
                       const ScheduleOptions& options);

// Sets steps 1, 2, ... and the running checksum.
void chain(std::vector<StepPlan>& plans);

using OpenCheckpoint = std::function<std::shared_ptr<Checkpoint>()>;
// Runs the plans on options.layout.ranks() ranks in this process; the results of the
// samplers, one per plan and dp group.
std::vector<StepResult> run_plans(const OpenCheckpoint& open, const ReplicaOptions& options,
                                  const std::vector<StepPlan>& plans,
                                  Duration deadline = std::chrono::seconds(100));

// The two together.
std::vector<TestOutput> generate(const OpenCheckpoint& open, const ReplicaOptions& options,
                                 const std::vector<TestRequest>& requests,
                                 const ScheduleOptions& schedule = {});

// Layout and limits for tiny models; blocks are what kv_memory's default gives for them.
ReplicaOptions tiny_options(int tp = 1, int pp = 1, std::vector<int> shares = {});

}  // namespace cohort::testing
