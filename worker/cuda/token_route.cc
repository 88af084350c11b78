// SPDX-License-Identifier: Apache-2.0
#include "worker/cuda/token_route.h"

#include <algorithm>

namespace cohort {

DeviceTokenRoute::DeviceTokenRoute(Stream& stream, Group tokens, const cuda::TokenTable& table,
                                   const SlotTable& slots, int32_t max_slots, int flights)
    : stream_(stream),
      device_(static_cast<CudaDevice&>(stream.device())),
      tokens_(tokens),
      table_(table),
      slots_(slots),
      max_slots_(max_slots),
      first_(tokens.size() > 1 && tokens.rank() == 0),
      last_(tokens.size() > 1 && tokens.rank() + 1 == tokens.size()) {
  const size_t message = size_t(max_slots) * sizeof(int32_t);
  if (last_) outbox_.emplace(device_, device_.tokens(), int(2 * kUnread), message);
  if (!first_) return;
  message_ = device_.allocate(message);
  fixed_ = device_.allocate(kUnread * 2 * message);
  for (int i = 0; i < flights; i++)
    places_.push_back(device_.allocate_pinned(kUnread * 2 * message));
}

void DeviceTokenRoute::before_step(const StepPlan& plan, int flight) {
  if (!first_) return;
  for (int32_t nth = 0;
       !pending_.empty() && (pending_.front().step + kUnread <= plan.step || lacks_token(plan));
       nth++)
    receive_oldest(flight, nth);
  Pending pending{plan.step, {}, {}};
  for (const StepEntry& entry : plan.entries) {
    if (!entry.sample) continue;
    pending.slots.push_back(slots_.ref(entry.slot));
    pending.positions.push_back(entry.start + entry.length);
  }
  if (!pending.slots.empty()) pending_.push_back(std::move(pending));
}

// Whether a token that the plan computes with is on its way, unread.
bool DeviceTokenRoute::lacks_token(const StepPlan& plan) const {
  return std::any_of(pending_.begin(), pending_.end(),
                     [&](const Pending& pending) { return needed_by(pending, plan); });
}

bool DeviceTokenRoute::needed_by(const Pending& pending, const StepPlan& plan) const {
  for (const StepEntry& entry : plan.entries)
    for (size_t i = 0; i < pending.slots.size(); i++)
      if (pending.slots[i].slot == entry.slot &&
          pending.slots[i].life == slots_.at(entry.slot).life &&
          pending.positions[i] < entry.start + entry.length)
        return true;
  return false;
}

void DeviceTokenRoute::receive_oldest(int flight, int32_t nth) {
  const Pending& oldest = pending_.front();
  const int64_t n = int64_t(oldest.slots.size());
  tokens_.recv(message_.data(), n * int64_t(sizeof(int32_t)), tokens_.size() - 1).await_resume();
  const int64_t at = nth * 2 * max_slots_;
  int32_t* slots = places_[size_t(flight)].as<int32_t>() + at;
  int32_t* positions = slots + max_slots_;
  for (int64_t i = 0; i < n; i++) {
    const SlotRef& ref = oldest.slots[size_t(i)];
    // A token for a sequence that is gone is dropped.
    slots[i] = slots_.at(ref.slot).life == ref.life ? ref.slot : -1;
    positions[i] = oldest.positions[size_t(i)];
  }
  int32_t* fixed = fixed_.as<int32_t>() + at;
  cuda_check(cudaMemcpyAsync(fixed, slots, size_t(max_slots_ + n) * sizeof(int32_t),
                             cudaMemcpyHostToDevice, device_.compute()),
             "cudaMemcpyAsync of slots that tokens are for");
  cuda::store_tokens(stream_, table_, Tensor(message_.data(), DType::i32, {n}),
                     Tensor(fixed, DType::i32, {n}), Tensor(fixed + max_slots_, DType::i32, {n}));
  pending_.pop_front();
}

void DeviceTokenRoute::publish(const cuda::SampledRow* rows, int64_t n) {
  if (!last_ || n == 0) return;
  std::byte* message = outbox_->place();
  cuda_check(
      cudaMemcpy2DAsync(message, sizeof(int32_t), &rows->token, sizeof(cuda::SampledRow),
                        sizeof(int32_t), size_t(n), cudaMemcpyDeviceToDevice, device_.compute()),
      "cudaMemcpy2DAsync of sampled tokens");
  tokens_.send(message, n * int64_t(sizeof(int32_t)), 0).await_resume();
  outbox_->sent();
}

}  // namespace cohort
