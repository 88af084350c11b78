// SPDX-License-Identifier: Apache-2.0
// The loop of a replica: admit what came, plan ahead, take a result, publish its tokens. It runs on
// a thread of its own, one step ahead of the ranks, and sleeps while there is nothing to do.
#pragma once
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "worker/leader/inbox.h"
#include "worker/leader/scheduler.h"
#include "worker/leader/step_time_model.h"
#include "worker/plan_record.h"
#include "worker/step_plan.h"

namespace cohort {

// Where tokens go. Called by the loop's thread; must not block.
class EventSink {
 public:
  virtual ~EventSink() = default;
  // Of one step, in order; never empty.
  virtual void publish(std::vector<SequenceEvent> events) = 0;
};

struct LoadReport {
  SchedulerLoad scheduler;
  // StepTimeModel, for tokens that are spread evenly over the dp groups.
  double step_seconds = 0, token_seconds = 0;
  uint64_t submits = 0;  // that the numbers above count, or that ended
  friend bool operator==(const LoadReport&, const LoadReport&) = default;
};

// In how many micro-batches a plan is best computed, 1 or 2. Asked once per plan, which has its
// entries, by the loop's thread; what comes out changes no result.
using SplitPolicy = std::function<int(const StepPlan&)>;
// Copies of experts for the next plan, each told once. Asked by the loop's thread.
using CopySource = std::function<std::vector<ExpertCopy>()>;

struct BatchLoopOptions {
  uint64_t epoch = 0;
  SchedulerOptions scheduler;
  size_t inbox_capacity = 8192;
  double prefill_slowdown = kPrefillSlowdown;
  // Asked while idle, when no result could tell that the ranks are lost.
  std::function<Status()> health = [] { return Status::ok_status(); };
  Duration health_interval = std::chrono::milliseconds(200);
  SplitPolicy split = [](const StepPlan&) { return 1; };
  CopySource copies = [] { return std::vector<ExpertCopy>(); };
  std::unique_ptr<PlanRecorder> recorder;  // may be null
};

class BatchLoop {
 public:
  // executor and sink must outlive the loop. The thread starts with start().
  BatchLoop(StepExecutor& executor, EventSink& sink, BatchLoopOptions options);
  ~BatchLoop();  // stops and joins

  void start();
  // No more commands; the loop ends after the step that it waits for. Does not wait.
  void stop();
  bool ended() const { return ended_; }
  // Until the loop has ended: OK after stop(), else what ended the replica.
  Status wait();

  // A full queue or a request that cannot be served is refused here or by an event.
  Status submit(SequenceRequest request) { return inbox_.put(std::move(request)); }
  Status cancel(SequenceId id) { return inbox_.put(CancelRequest{id}); }
  LoadReport load() const;

 private:
  Status run();
  void admit(std::vector<Command> commands);
  Status submit_plans();
  void complete(StepPlan& plan) const;
  Status take_result();
  void publish();
  Status rest();
  Status stuck() const;
  int32_t row_budget() const;
  LoadReport report() const;

  StepExecutor& executor_;
  EventSink& sink_;
  const BatchLoopOptions options_;
  Inbox inbox_;

  Scheduler scheduler_;  // this and below: the loop's thread
  StepTimeModel times_;
  std::deque<int64_t> rows_in_flight_;  // of the largest dp group, plan by plan
  uint64_t submits_ = 0;
  std::vector<SequenceEvent> refused_;  // and cancelled: ends that the scheduler does not report
  bool checked_idle_ = true;

  mutable std::mutex mutex_;
  LoadReport load_;  // guarded by mutex_
  Status end_;       // written before ended_ is
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

}  // namespace cohort
