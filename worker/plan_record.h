// SPDX-License-Identifier: Apache-2.0
// The steps of a replica as a file: every plan before it is submitted, every result when it is in.
// Feeding the plans to ranks again gives the same results, so a failure can be looked at where it
// happened and a change of kernels can be proved harmless on real traffic.
//
//   file = "CSREC002" | limits (6 x i32) | frame*      frame = u8 'P' or 'R' | u32 size | message
//
// A file that ends within a frame is that of a replica that was killed: the frame does not count.
#pragma once
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "worker/step_plan.h"

namespace cohort {

// One thread at a time.
class PlanRecorder {
 public:
  // Replaces the file. Errors name the path.
  static Result<std::unique_ptr<PlanRecorder>> create(const std::string& path,
                                                      const StepLimits& limits);
  Status add(const StepPlan& plan) { return add_frame('P', encode(plan)); }
  Status add(const StepResult& result) { return add_frame('R', encode(result)); }

 private:
  explicit PlanRecorder(const std::string& path);
  Status add_frame(char type, const std::string& message);

  const std::string path_;
  std::ofstream file_;
};

struct PlanRecord {
  StepLimits limits;
  std::vector<StepPlan> plans;
  std::vector<StepResult> results;  // of the first results.size() plans
};
Result<PlanRecord> read_plan_record(const std::string& path);

// Submits the plans as far ahead as the executor's limits allow; the results, in order.
Result<std::vector<StepResult>> replay(const std::vector<StepPlan>& plans, StepExecutor& executor);

}  // namespace cohort
