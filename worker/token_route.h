// SPDX-License-Identifier: Apache-2.0
// How a sampled token becomes the next step's input without passing the leader: the sampler sends
// the tokens of a step, one small message, to every rank of the first stage; those receive it only
// when a later step needs one of its tokens, so that a stage that is ahead never waits for nothing.
//
//   sampler      step 1 ── tokens ──►  step 2 ── tokens ──►
//   first stage  step 1 │ step 2 (other sequences) │ receive tokens of 1 │ step 3 ...
//
// Used by the step thread alone.
#pragma once
#include <cstdint>
#include <deque>
#include <vector>

#include "parallel/group.h"
#include "parallel/mesh.h"
#include "worker/slot_table.h"
#include "worker/step_plan.h"

namespace cohort {

class TokenRoute {
 public:
  // A message may be unread for so many steps, and holds the tokens of so many sequences: what
  // every communicator takes for a peer without making the sender wait. The sampler must never wait
  // here, because the leader may have no further plan that would make the first stage read.
  static constexpr uint64_t kUnread = Communicator::kHeldMessages;
  static constexpr int64_t kMostTokens = Communicator::kHeldBytes / int64_t(sizeof(int32_t));

  // Borrows slots and world.
  TokenRoute(const Mesh& mesh, int rank, Group world, SlotTable& slots);

  // First stage, once per plan, before the embedding: receives what the plan needs, then notes what
  // the plan will sample.
  void before_step(const StepPlan& plan);
  // Sampler: tokens of the plan's sampling entries, in plan order.
  void publish(const StepPlan& plan, std::span<const SampledToken> tokens);

 private:
  struct Pending {
    uint64_t step = 0;
    std::vector<SlotRef> slots;
  };
  void receive_oldest();
  bool lacks_token(const StepPlan& plan) const;

  const int sampler_;
  const bool receives_;
  std::vector<int> receivers_;  // sampler: world ranks to send to
  Group world_;
  SlotTable& slots_;
  std::deque<Pending> pending_;   // oldest first, at most kUnread
  std::vector<int32_t> message_;  // token ids
};

}  // namespace cohort
