// SPDX-License-Identifier: Apache-2.0
// The inputs of a step on its way to the GPU: written on the host into page-locked memory, copied
// by the copy stream to a place of their own, and from there, in the step's turn on the compute
// stream, to where the kernels of all steps (captured ones too) read them.
//
//   host, per flight ──copy stream──► device, per flight ──compute stream──► device, fixed
//
// A flight is one step that is launched and not collected. Used by the step thread alone.
#pragma once
#include <cstdint>
#include <vector>

#include "base/device_cuda.h"
#include "kernels/cuda/batch.h"
#include "kernels/cuda/sampler.h"
#include "worker/cuda/step_shape.h"
#include "worker/slot_table.h"

namespace cohort {

class StepInputs {
 public:
  // sampler: null on ranks that do not sample; borrowed. flights: how many there are.
  StepInputs(CudaDevice& device, const KvGeometry& geometry, const StepLimits& limits,
             const cuda::Sampler* sampler, int flights);

  // How the plan is launched. INTERNAL where it breaks rules 6 or 7 of docs/step.md section 3.
  Result<StepShape> shape_of(const StepPlan& plan, const SlotTable& slots);
  // Writes the plan's inputs and enqueues their copies. After shape_of of the same plan.
  void send(const StepPlan& plan, const SlotTable& slots, const StepShape& shape, int flight);
  // The same for a step of padding.
  void send_padding(const StepShape& shape, int flight);

  // Of the latest plan; entries of its AttentionBatch.
  const std::vector<AttentionEntry>& entries() const { return entries_; }

  // Where kernels read; the same for the life of the rank.
  const cuda::DeviceBatch& batch() const { return batch_view_; }
  Tensor slots(int64_t rows) const { return ints(0, rows); }  // i32, of each row
  Tensor positions(int64_t rows) const;                       // i32, of each row; -1: padding
  Tensor sampled_rows(int64_t n) const { return ints(rows_at_, n); }  // i32 [n]
  const std::byte* sampler() const { return sampler_fixed_.data(); }

 private:
  struct Flight {
    Buffer host, device;                  // slots | sampled rows | batch
    Buffer sampler_host, sampler_device;  // the sampler's parameters
  };
  Tensor ints(int64_t first, int64_t n) const {
    return Tensor(fixed_.as<int32_t>() + first, DType::i32, {n});
  }
  int32_t* host_ints(Flight& flight) const { return flight.host.as<int32_t>(); }
  void fill_rows(const StepPlan& plan, int32_t* ints, int64_t rows) const;
  void enqueue(Flight& flight, const StepShape& shape);
  void copy(const Buffer& host, const Buffer& staging, const Buffer& fixed, size_t bytes);

  CudaDevice& device_;
  const cuda::Sampler* sampler_;
  const StepLimits limits_;
  const cuda::BatchArrays arrays_;
  const int64_t rows_at_, batch_at_;  // in ints: of the sampled rows, of the batch
  std::vector<Flight> flights_;
  Buffer fixed_, sampler_fixed_, workspace_;
  cuda::DeviceBatch batch_view_;
  std::vector<AttentionEntry> entries_;
  std::vector<cuda::SamplerRow> sampler_rows_;
};

}  // namespace cohort
