// SPDX-License-Identifier: Apache-2.0
#include "worker/rank_group.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "worker/step_loop.h"

namespace cohort {
namespace {

// How soon the reader sees that the group is ending.
constexpr Duration kHubWait = std::chrono::milliseconds(500);

}  // namespace

RankGroup::RankGroup(Rank& rank, ControlHub* hub, EndProcess end_process, LoadSink loads)
    : rank_(rank),
      hub_(hub),
      loads_(std::move(loads)),
      plans_(rank.limits().in_flight),
      merge_(rank.limits()),
      watchdog_(rank.step_timeout(),
                {.progress = [&rank] { return rank.progress(); },
                 .report =
                     [hub](const Progress& progress) {
                       if (hub != nullptr) hub->set_progress(progress);
                     },
                 .stalled =
                     [this](const Status& why) {
                       fail(why.annotate(concat("rank ", rank_.rank(), " on ", rank_.host())));
                     },
                 .hopeless = [end_process] { end_process(kExitRankFailed); }}),
      steps_([this] { run_steps(); }) {
  if (hub_ != nullptr) reader_ = std::thread([this] { read_hub(); });
}

RankGroup::~RankGroup() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  if (hub_ != nullptr && failure().ok()) (void)hub_->broadcast(FrameType::shutdown, "");
  plans_.close();
  steps_.join();
  if (reader_.joinable()) reader_.join();
}

Status RankGroup::submit(const StepPlan& plan) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return failure_;
    if (unanswered_ >= limits().in_flight)
      return internal_error(concat(unanswered_, " plans are unanswered already"));
    unanswered_++;
    merge_.expect(plan);
    rows_ = std::max(rows_, plan.rows());
  }
  if (hub_ != nullptr) {
    if (Status sent = hub_->broadcast(FrameType::plan, encode(plan)); !sent.ok()) {
      fail(sent);
      return failure();
    }
  }
  if (!plans_.push(plan)) fail(internal_error("rank 0 has not taken the plans before this one"));
  return failure();
}

Result<StepResult> RankGroup::next_result() {
  std::unique_lock lock(mutex_);
  if (results_.empty() && unanswered_ == 0)
    return internal_error("no plan is unanswered, so there is no result to wait for");
  const int64_t rows = rows_;
  const Duration patience = 4 * watchdog_.allowed(rows);
  const bool came =
      changed_.wait_for(lock, patience, [&] { return !results_.empty() || !failure_.ok(); });
  if (!came) {
    const Status late =
        deadline_exceeded(concat("no result came within ", seconds(patience), " s", missing()));
    lock.unlock();
    fail(late);
    return failure();
  }
  if (results_.empty()) return failure_;
  StepResult result = std::move(results_.front());
  results_.pop_front();
  unanswered_--;
  return result;
}

bool RankGroup::has_result() const {
  const std::lock_guard lock(mutex_);
  return !results_.empty() || !failure_.ok();
}

Status RankGroup::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void RankGroup::run_steps() {
  StepLoop loop(rank_, plans_, watchdog_);
  while (true) {
    auto next = loop.next();
    if (!next.ok()) return fail(next.status());
    if (next->ended) return;
    if (next->result) deliver(rank_.rank(), std::move(*next->result));
    if (!next->load) continue;
    if (const Status taken = loads_(*next->load); !taken.ok()) return fail(taken);
  }
}

void RankGroup::read_hub() {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (stop_ || !failure_.ok()) return;
    }
    const Result<Frame> frame = hub_->next(kHubWait);
    if (frame.ok())
      take(*frame);
    else if (frame.status().code() != Code::kDeadlineExceeded)
      fail(frame.status());
  }
}

void RankGroup::take(const Frame& frame) {
  if (frame.type == FrameType::error) return fail(internal_error(frame.payload));
  if (frame.type == FrameType::load) return take_load(frame);
  if (frame.type != FrameType::result || !rank_.mesh().is_sampler(frame.rank))
    return fail(internal_error(concat("rank ", frame.rank, " sent a frame of type ",
                                      int(frame.type), ", which it should not")));
  Result<StepResult> result = decode_step_result(frame.payload);
  if (!result.ok()) return fail(result.status().annotate(concat("rank ", frame.rank)));
  deliver(frame.rank, std::move(*result));
}

void RankGroup::take_load(const Frame& frame) {
  const Coordinates at = rank_.mesh().coordinates(frame.rank);
  const Result<ExpertLoad> load = decode_expert_load(frame.payload);
  Status taken = load.status();
  if (taken.ok() && (at.tp != 0 || load->dp != at.dp))
    taken = internal_error("it told the load of another rank's tokens");
  if (taken.ok()) taken = loads_(*load);
  if (!taken.ok()) fail(taken.annotate(concat("rank ", frame.rank)));
}

void RankGroup::deliver(int rank, StepResult result) {
  Status added;
  {
    const std::lock_guard lock(mutex_);
    added = merge_.add(rank_.mesh().coordinates(rank).dp, std::move(result));
    while (auto whole = merge_.take()) results_.push_back(std::move(*whole));
  }
  if (!added.ok()) return fail(added.annotate(concat("rank ", rank)));
  changed_.notify_all();
}

std::string RankGroup::missing() const {
  std::string text;
  for (const int dp : merge_.missing())
    text += concat(text.empty() ? " from rank " : ", rank ", rank_.mesh().sampler(dp));
  return text;
}

// Any thread. The first failure is the one that is told; what follows from it is only logged.
void RankGroup::fail(const Status& why) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return;
    first = failure_.ok();
    if (first) failure_ = why;
  }
  if (first)
    log_error(concat("the replica has failed: ", why.to_string(), " (rank ", rank_.rank(), " on ",
                     rank_.host(), " is in: ", rank_.progress().where, ")"));
  else
    log_warning(concat("after the failure: ", why.to_string()));
  plans_.close();
  rank_.abort(why);
  changed_.notify_all();
}

}  // namespace cohort
