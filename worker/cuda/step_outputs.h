// SPDX-License-Identifier: Apache-2.0
// What a step leaves for the host: error codes of its rows and what was sampled. Copied aside on
// the compute stream, so that the next step may go on, and to page-locked memory by the copy
// stream. Used by the step thread alone.
#pragma once
#include <cstdint>
#include <vector>

#include "base/device_cuda.h"
#include "kernels/cuda/sampler.h"
#include "worker/cuda/step_shape.h"
#include "worker/step_plan.h"

namespace cohort {

class StepOutputs {
 public:
  StepOutputs(CudaDevice& device, const StepLimits& limits, int flights);

  // Where the sampler writes. The same for the life of the rank.
  cuda::SampledRow* sampled() const { return sampled_.as<cuda::SampledRow>(); }

  // Enqueues the copies of a step on the rank that tells results; others only mark its end.
  void fetch(const StepPlan& plan, Tensor row_errors, int flight);
  void mark_end(int flight);

  const CudaEvent& end(int flight) const { return flights_[size_t(flight)].end; }
  // After the end: what became of the plan's entries that sampled, and of failed ones.
  std::vector<SlotResult> results(int flight) const;

 private:
  struct Entry {
    int32_t slot = 0, length = 0;
    bool sample = false;
  };
  struct Flight {
    Buffer host, device;  // SampledRow [max_slots] | i32 [max_rows]
    CudaEvent end;
    std::vector<Entry> entries;
  };

  CudaDevice& device_;
  const size_t errors_at_;  // in bytes
  const size_t bytes_;
  Buffer sampled_;
  std::vector<Flight> flights_;
};

}  // namespace cohort
