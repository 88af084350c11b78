// SPDX-License-Identifier: Apache-2.0
#include "worker/cuda/step_outputs.h"

#include <algorithm>
#include <span>

#include "worker/where.h"

namespace cohort {

StepOutputs::StepOutputs(CudaDevice& device, const StepLimits& limits, int flights)
    : device_(device),
      errors_at_(size_t(limits.max_slots) * sizeof(cuda::SampledRow)),
      bytes_(errors_at_ + size_t(limits.max_rows) * sizeof(int32_t)),
      sampled_(device.allocate(errors_at_)) {
  for (int i = 0; i < flights; i++)
    flights_.push_back(
        {device.allocate_pinned(bytes_), device.allocate(bytes_), CudaEvent(device), {}});
}

void StepOutputs::fetch(const StepPlan& plan, Tensor row_errors, int flight) {
  Flight& f = flights_[size_t(flight)];
  f.entries.clear();
  size_t sampled = 0;
  for (const StepEntry& entry : plan.entries) {
    f.entries.push_back({entry.slot, entry.length, entry.sample});
    sampled += entry.sample;
  }
  const auto copy = [](void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                       cudaStream_t stream) {
    if (bytes > 0)
      cuda_check(cudaMemcpyAsync(to, from, bytes, kind, stream), "cudaMemcpyAsync of results");
  };
  const size_t sampled_bytes = sampled * sizeof(cuda::SampledRow);
  const size_t error_bytes = size_t(plan.rows()) * sizeof(int32_t);
  copy(f.device.data(), sampled_.data(), sampled_bytes, cudaMemcpyDeviceToDevice,
       device_.compute());
  copy(f.device.data() + errors_at_, row_errors.data(), error_bytes, cudaMemcpyDeviceToDevice,
       device_.compute());
  device_.order(device_.compute(), device_.copy());
  copy(f.host.data(), f.device.data(), sampled_bytes, cudaMemcpyDeviceToHost, device_.copy());
  copy(f.host.data() + errors_at_, f.device.data() + errors_at_, error_bytes,
       cudaMemcpyDeviceToHost, device_.copy());
  f.end.record(device_.copy());
}

void StepOutputs::mark_end(int flight) {
  flights_[size_t(flight)].entries.clear();
  flights_[size_t(flight)].end.record(device_.compute());
}

std::vector<SlotResult> StepOutputs::results(int flight) const {
  const Flight& f = flights_[size_t(flight)];
  const auto* sampled = f.host.as<cuda::SampledRow>();
  const auto* errors = reinterpret_cast<const int32_t*>(f.host.data() + errors_at_);
  std::vector<SlotResult> results;
  for (const Entry& entry : f.entries) {
    const std::span rows(errors, size_t(entry.length));
    errors += entry.length;
    const auto failed =
        std::find_if(rows.begin(), rows.end(), [](int32_t e) { return e != row_error::kNone; });
    SlotResult result{.slot = entry.slot, .sampled = {}, .error = {}};
    if (entry.sample) result.sampled = cuda::to_sampled_token(*sampled++);
    if (failed != rows.end())
      result.error = row_error::text(*failed);
    else if (!result.sampled.finite)
      result.error = "final logits: value is not finite";
    if (entry.sample || !result.error.empty()) results.push_back(std::move(result));
  }
  return results;
}

}  // namespace cohort
