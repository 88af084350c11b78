// SPDX-License-Identifier: Apache-2.0
// The leader's view of its ranks: takes plans, gives results. A plan goes to every rank as the same
// bytes; rank 0, in this process, executes it on a thread of its own. A step has its result once
// the samplers of all dp groups have answered.
//
// Threads: submit, next_result and has_result by the batch loop's thread (any one thread);
// three threads inside: rank 0's steps, the reader of the hub, the watchdog of rank 0.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "comm/control.h"
#include "worker/plan_queue.h"
#include "worker/rank.h"
#include "worker/rank_loop.h"
#include "worker/result_merge.h"
#include "worker/step_plan.h"
#include "worker/watchdog.h"

namespace cohort {

// Where the ranks' loads go; called by two threads. An error ends the replica.
using LoadSink = std::function<Status(const ExpertLoad&)>;

class RankGroup : public StepExecutor {
 public:
  // Borrows both. hub: the accepted ranks 1 .. n-1; null where rank 0 is alone. end_process is
  // called where rank 0's step cannot be brought back after a stall.
  RankGroup(
      Rank& rank, ControlHub* hub, EndProcess end_process,
      LoadSink loads = [](const ExpertLoad&) { return Status(); });
  // Tells the other ranks to shut down, unless the replica has failed.
  ~RankGroup() override;

  const StepLimits& limits() const override { return rank_.limits(); }
  // Fails once the replica has failed, and where too many plans are unanswered.
  Status submit(const StepPlan& plan) override;
  // Waits for at most four times what the watchdog allows a step.
  Result<StepResult> next_result() override;
  bool has_result() const override;

  // What ended the replica, or OK. It names rank, host, collective and layer where they are known.
  Status failure() const;

 private:
  void run_steps();
  void read_hub();
  void take(const Frame& frame);
  void take_load(const Frame& frame);
  void deliver(int rank, StepResult result);  // a sampler's answer
  std::string missing() const;                // who has yet to answer; mutex_ is held
  void fail(const Status& why);

  Rank& rank_;
  ControlHub* const hub_;
  const LoadSink loads_;
  PlanQueue plans_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  ResultMerge merge_;               // guarded by mutex_, as all below
  std::deque<StepResult> results_;  // of all groups; at most in_flight
  int unanswered_ = 0;
  int64_t rows_ = 0;  // of the largest plan so far
  Status failure_;
  bool stop_ = false;

  Watchdog watchdog_;
  std::thread steps_, reader_;
};

}  // namespace cohort
