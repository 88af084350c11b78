// SPDX-License-Identifier: Apache-2.0
#include "worker/rank.h"

#include <utility>

namespace cohort {

Rank::~Rank() {
  // Tokens that no step needed may still wait for their receiver, and a GPU's memory cannot be
  // given back before what it does has ended. Receivers end in peace: a sender may be later.
  const bool sends = mesh_.coordinates(rank_).pp + 1 == mesh_.pp();
  if (sends && device_tokens_ != nullptr) device_tokens_->abort(cancelled("the rank ends"));
}

Status Rank::launch(const StepPlan& plan) {
  busy_.store(true, std::memory_order_relaxed);
  const Status launched = runner_->launch(plan);
  if (!launched.ok()) return launched.annotate(concat("rank ", rank_, " on ", host_));
  launched_.push_back(plan.step);
  return {};
}

Result<std::optional<StepResult>> Rank::collect() {
  COHORT_CHECK(!launched_.empty());
  auto result = runner_->collect(patience_);
  if (!result.ok()) return result.status().annotate(concat("rank ", rank_, " on ", host_));
  finished_.store(launched_.front(), std::memory_order_relaxed);
  launched_.pop_front();
  busy_.store(!launched_.empty(), std::memory_order_relaxed);
  return result;
}

Result<std::optional<StepResult>> Rank::execute(const StepPlan& plan) {
  COHORT_RETURN_IF_ERROR(launch(plan));
  return collect();
}

std::optional<ExpertLoad> Rank::take_expert_load() {
  const Coordinates at = mesh_.coordinates(rank_);
  if (at.tp != 0) return std::nullopt;
  ExpertLoad load =
      expert_load(at.dp, partition_.layers[size_t(at.pp)].begin, runner_->take_expert_load());
  if (load.layers.empty()) return std::nullopt;
  return load;
}

void Rank::set_patience(Duration patience) {
  patience_ = patience;
  for (Communicator* c : communicators()) c->set_timeout(patience);
}

void Rank::abort(const Status& why) {
  for (Communicator* c : communicators()) c->abort(why);
  if (runner_ != nullptr) runner_->abort(why);
}

std::vector<Communicator*> Rank::communicators() const {
  std::vector<Communicator*> made;  // while a rank is loaded, there may be none yet
  for (const auto* c : {&tp_, &dp_, &pp_, &world_, &device_tp_, &device_pp_, &device_tokens_})
    if (*c != nullptr) made.push_back(c->get());
  return made;
}

WorkTotals Rank::work() const {
  const StepTimes total = runner_->times().total();
  return {.compute_seconds = total.compute,
          .communication_seconds = total.communication,
          .hidden_communication_seconds = total.hidden,
          .idle_seconds = total.idle,
          .bytes_sent = uint64_t(total.bytes_sent)};
}

Progress Rank::progress() const {
  return {.step = finished_.load(std::memory_order_relaxed),
          .busy = busy_.load(std::memory_order_relaxed),
          .where = runner_->where().text(),
          .work = work()};
}

}  // namespace cohort
