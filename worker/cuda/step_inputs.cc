// SPDX-License-Identifier: Apache-2.0
#include "worker/cuda/step_inputs.h"

#include <algorithm>

namespace cohort {
namespace {

constexpr int64_t kAlign = 64;  // ints: 256 bytes
int64_t aligned(int64_t ints) { return (ints + kAlign - 1) / kAlign * kAlign; }

cuda::BatchLimits batch_limits(const StepLimits& limits) {
  return {.max_rows = limits.max_rows,
          .max_entries = limits.max_slots,
          .max_positions = limits.max_context};
}

}  // namespace

StepInputs::StepInputs(CudaDevice& device, const KvGeometry& geometry, const StepLimits& limits,
                       const cuda::Sampler* sampler, int flights)
    : device_(device),
      sampler_(sampler),
      limits_(limits),
      arrays_(geometry, batch_limits(limits)),
      rows_at_(aligned(limits.max_rows)),
      batch_at_(rows_at_ + aligned(limits.max_slots)) {
  const size_t bytes = size_t(batch_at_) * sizeof(int32_t) + arrays_.bytes();
  const size_t sampler_bytes = sampler == nullptr ? 0 : sampler->input_bytes();
  fixed_ = device.allocate(bytes);
  sampler_fixed_ = device.allocate(sampler_bytes);
  workspace_ = device.allocate(arrays_.workspace_bytes());
  for (int i = 0; i < flights; i++)
    flights_.push_back({device.allocate_pinned(bytes), device.allocate(bytes),
                        device.allocate_pinned(sampler_bytes), device.allocate(sampler_bytes)});
  batch_view_ =
      arrays_.view(fixed_.data() + size_t(batch_at_) * sizeof(int32_t), workspace_.data());
}

Tensor StepInputs::positions(int64_t rows) const {
  return Tensor(batch_view_.position, DType::i32, {rows});
}

Result<StepShape> StepInputs::shape_of(const StepPlan& plan, const SlotTable& slots) {
  sampler_rows_.clear();
  bool decode = true;
  for (const StepEntry& entry : plan.entries) {
    const Slot& slot = slots.at(entry.slot);
    const int64_t known = int64_t(slot.tokens.size()), end = int64_t(entry.start) + entry.length;
    if (end > known || (entry.sample && end != known))
      return internal_error(concat("the plan of step ", plan.step, " computes slot ", entry.slot,
                                   " up to position ", end - 1, ", and ", known,
                                   " tokens are known"));
    decode = decode && entry.sample && entry.length == 1;
    if (entry.sample)
      sampler_rows_.push_back({&slot.sampling, entry.slot, slot.prompt_tokens, int32_t(known)});
  }
  StepShape shape{.decode = decode,
                  .rows = plan.rows(),
                  .sampled = int64_t(sampler_rows_.size()),
                  .features = cuda::features_of(sampler_rows_)};
  if (decode) shape.rows = shape.sampled = bucket_of(shape.rows, most_decoding(limits_));
  return shape;
}

void StepInputs::send(const StepPlan& plan, const SlotTable& slots, const StepShape& shape,
                      int flight) {
  entries_.clear();
  int64_t row = 0;
  for (const StepEntry& entry : plan.entries) {
    entries_.push_back({slots.at(entry.slot).blocks.data(), row, entry.start, entry.length});
    row += entry.length;
  }
  Flight& f = flights_[size_t(flight)];
  fill_rows(plan, host_ints(f), shape.rows);
  enqueue(f, shape);
}

void StepInputs::send_padding(const StepShape& shape, int flight) {
  entries_.clear();
  sampler_rows_.clear();
  Flight& f = flights_[size_t(flight)];
  fill_rows(StepPlan{}, host_ints(f), shape.rows);
  enqueue(f, shape);
}

// Slots of the rows, and which rows are sampled: padding samples row 0 into nowhere.
void StepInputs::fill_rows(const StepPlan& plan, int32_t* ints, int64_t rows) const {
  int32_t* slot = ints;
  int32_t* sampled = ints + rows_at_;
  for (const StepEntry& entry : plan.entries) {
    slot = std::fill_n(slot, entry.length, entry.slot);
    if (entry.sample) *sampled++ = int32_t(slot - ints - 1);
  }
  std::fill(slot, ints + rows, -1);
  std::fill(sampled, ints + rows_at_ + limits_.max_slots, 0);
}

void StepInputs::enqueue(Flight& flight, const StepShape& shape) {
  std::byte* batch = flight.host.data() + size_t(batch_at_) * sizeof(int32_t);
  const size_t used = arrays_.fill(batch, entries_, shape.rows);
  copy(flight.host, flight.device, fixed_, size_t(batch_at_) * sizeof(int32_t) + used);
  if (sampler_ == nullptr || shape.sampled == 0) return;
  copy(flight.sampler_host, flight.sampler_device, sampler_fixed_,
       sampler_->fill(flight.sampler_host.data(), sampler_rows_, shape.sampled));
}

void StepInputs::copy(const Buffer& host, const Buffer& staging, const Buffer& fixed,
                      size_t bytes) {
  cuda_check(
      cudaMemcpyAsync(staging.data(), host.data(), bytes, cudaMemcpyHostToDevice, device_.copy()),
      "cudaMemcpyAsync of step inputs");
  device_.order(device_.copy(), device_.compute());
  cuda_check(cudaMemcpyAsync(fixed.data(), staging.data(), bytes, cudaMemcpyDeviceToDevice,
                             device_.compute()),
             "cudaMemcpyAsync of step inputs on the device");
}

}  // namespace cohort
