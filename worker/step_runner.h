// SPDX-License-Identifier: Apache-2.0
// Executes step plans on one rank (docs/step.md): checks a plan, turns it into the inputs of a
// batched forward pass, runs that, and gives the result. One implementation per kind of device;
// they share the slot table and the stage's layers. Used by the rank's step thread alone; where()
// may be read by any thread.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "worker/stage.h"
#include "worker/step_plan.h"
#include "worker/step_times.h"
#include "worker/where.h"

namespace cohort {

class StepRunner {
 public:
  virtual ~StepRunner() = default;

  // Plans that may be launched and not yet collected. 1: launch has computed when it returns.
  virtual int depth() const = 0;
  // After an error the rank cannot go on: its peers may be anywhere in the step.
  virtual Status launch(const StepPlan& plan) = 0;
  // Whether collect would not wait.
  virtual bool finished() const = 0;
  // Of the oldest plan that is not collected yet, waiting for at most `patience`: the result, on
  // the rank that samples; nothing on the others.
  virtual Result<std::optional<StepResult>> collect(Duration patience) = 0;
  // Ends a wait of collect. Any thread.
  virtual void abort(const Status& why) = 0;
  // Between steps: how often this rank's tokens chose each expert of each layer of the stage since
  // the last call. Empty where it is not counted, as on a GPU.
  virtual std::vector<std::vector<int64_t>> take_expert_load() { return {}; }

  Where& where() { return where_; }
  // Where the time of its steps went; empty on a GPU. Any thread.
  const StepTimesBoard& times() const { return times_; }

 protected:
  Where where_;
  StepTimesBoard times_;
};

std::unique_ptr<StepRunner> make_cpu_step_runner(const StageParts& parts);
// worker/cuda/; parts.stream is a GPU's. Throws Failure and OutOfMemory.
std::unique_ptr<StepRunner> make_cuda_step_runner(const StageParts& parts);

}  // namespace cohort
