// SPDX-License-Identifier: Apache-2.0
// How a sampled token becomes the next step's input where GPUs form a pipeline: the last stage
// sends the tokens of a step to the first stage of its column, GPU to GPU; the first stage receives
// them only when a later step needs one of them, or when too many are unread (worker/token_route.h
// has the reasons). Without a pipeline there is nothing to do: the sampler has written them to the
// table. Used by the step thread alone; everything is enqueued.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/device_cuda.h"
#include "kernels/cuda/sampled_row.h"
#include "kernels/cuda/tokens.h"
#include "parallel/group.h"
#include "worker/cuda/outbox.h"
#include "worker/slot_table.h"

namespace cohort {

class DeviceTokenRoute {
 public:
  // Unread messages at most; also bounds how far the sender can be ahead.
  static constexpr uint64_t kUnread = Communicator::kHeldMessages;

  // Borrows all. tokens: the ranks of this tp index, by stage.
  DeviceTokenRoute(Stream& stream, Group tokens, const cuda::TokenTable& table,
                   const SlotTable& slots, int32_t max_slots, int flights);

  // First stage, before the embedding: receives what the plan needs, then notes what the plan will
  // sample. flight: whose memory is free (worker/cuda/step_inputs.h).
  void before_step(const StepPlan& plan, int flight);
  // Last stage, after the sampler: rows as it wrote them, of the plan's sampling entries.
  void publish(const cuda::SampledRow* rows, int64_t n);

 private:
  struct Pending {
    uint64_t step = 0;
    std::vector<SlotRef> slots;
    std::vector<int32_t> positions;  // where the tokens go
  };
  bool needed_by(const Pending& pending, const StepPlan& plan) const;
  bool lacks_token(const StepPlan& plan) const;
  void receive_oldest(int flight, int32_t nth);

  Stream& stream_;
  CudaDevice& device_;
  Group tokens_;
  const cuda::TokenTable& table_;
  const SlotTable& slots_;
  const int64_t max_slots_;
  const bool first_, last_;
  std::deque<Pending> pending_;   // first stage: oldest first, at most kUnread
  std::vector<Buffer> places_;    // first stage: per flight, host: [kUnread][slots | positions]
  Buffer fixed_, message_;        // the same on the device; tokens of one message
  std::optional<Outbox> outbox_;  // last stage
};

}  // namespace cohort
