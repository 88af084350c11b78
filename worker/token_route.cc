// SPDX-License-Identifier: Apache-2.0
#include "worker/token_route.h"

#include "base/check.h"

namespace cohort {

TokenRoute::TokenRoute(const Mesh& mesh, int rank, Group world, SlotTable& slots)
    : sampler_(mesh.sampler(mesh.coordinates(rank).dp)),
      receives_(mesh.coordinates(rank).pp == 0 && rank != sampler_),
      world_(world),
      slots_(slots) {
  if (rank != sampler_) return;
  for (int first : mesh.tp_group({.dp = mesh.coordinates(rank).dp}))
    if (first != sampler_) receivers_.push_back(first);
}

void TokenRoute::before_step(const StepPlan& plan) {
  while (!pending_.empty() && (pending_.front().step + kUnread <= plan.step || lacks_token(plan)))
    receive_oldest();
  if (lacks_token(plan))
    throw Failure(internal_error(
        concat("the plan of step ", plan.step, " computes a position whose token nobody sampled")));
  if (!receives_) return;
  Pending pending{plan.step, {}};
  for (const StepEntry& entry : plan.entries)
    if (entry.sample) pending.slots.push_back(slots_.ref(entry.slot));
  if (!pending.slots.empty()) pending_.push_back(std::move(pending));
}

void TokenRoute::publish(const StepPlan& plan, std::span<const SampledToken> tokens) {
  message_.clear();
  for (const StepEntry& entry : plan.entries) {
    if (!entry.sample) continue;
    const int32_t token = tokens[message_.size()].token;
    slots_.append(slots_.ref(entry.slot), token);
    message_.push_back(token);
  }
  if (message_.empty()) return;
  for (int receiver : receivers_)
    world_.send(message_.data(), int64_t(message_.size() * sizeof(int32_t)), receiver)
        .await_resume();
}

void TokenRoute::receive_oldest() {
  const Pending& oldest = pending_.front();
  message_.resize(oldest.slots.size());
  world_.recv(message_.data(), int64_t(message_.size() * sizeof(int32_t)), sampler_).await_resume();
  for (size_t i = 0; i < message_.size(); i++) slots_.append(oldest.slots[i], message_[i]);
  pending_.pop_front();
}

bool TokenRoute::lacks_token(const StepPlan& plan) const {
  for (const StepEntry& entry : plan.entries)
    if (int64_t(slots_.at(entry.slot).tokens.size()) < int64_t(entry.start) + entry.length)
      return true;
  return false;
}

}  // namespace cohort
