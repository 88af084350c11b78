// SPDX-License-Identifier: Apache-2.0
#include "worker/rank_loop.h"

#include <atomic>
#include <thread>
#include <utility>

#include "base/log.h"
#include "worker/plan_queue.h"
#include "worker/step_loop.h"
#include "worker/watchdog.h"

namespace cohort {
namespace {

// How soon the reader sees that the loop has ended. A dead leader is noticed by the link itself,
// within its lease.
constexpr Duration kLinkWait = std::chrono::milliseconds(500);

// A rank can lag behind the one that samples, whose result allows the next plan, by the end of a
// step.
constexpr int kLag = 2;

class RankLoop {
 public:
  RankLoop(Rank& rank, ControlLink& link, const EndProcess& end_process)
      : rank_(rank),
        link_(link),
        plans_(rank.limits().in_flight + kLag),
        watchdog_(rank.step_timeout(),
                  {.progress = [&rank] { return rank.progress(); },
                   .report = [&link](const Progress& p) { link.set_progress(p); },
                   .stalled = [this](const Status& why) { fail(named(why)); },
                   .hopeless = [end_process] { end_process(kExitRankFailed); }}),
        reader_([this] { read(); }) {}

  ~RankLoop() {
    plans_.close();
    reader_.join();
  }

  int run() {
    StepLoop loop(rank_, plans_, watchdog_);
    while (true) {
      const auto next = loop.next();
      if (!next.ok()) fail(next.status());
      if (!next.ok() || next->ended) return exit_code_;
      // A leader that does not take results is noticed by the reader.
      if (next->result) (void)link_.send(FrameType::result, encode(*next->result));
      if (next->load) (void)link_.send(FrameType::load, encode(*next->load));
    }
  }

 private:
  // Reader thread.
  void read() {
    while (!plans_.closed()) {
      const Result<Frame> frame = link_.next(kLinkWait);
      if (frame.ok() && frame->type == FrameType::plan) {
        take(frame->payload);
      } else if (frame.ok()) {
        plans_.close();
      } else if (frame.status().code() != Code::kDeadlineExceeded) {
        leader_gone(frame.status());
      }
    }
  }

  void take(const std::string& payload) {
    Result<StepPlan> plan = decode_step_plan(payload);
    if (!plan.ok()) return fail(named(plan.status()));
    if (!plans_.push(std::move(*plan)))
      fail(named(internal_error("the leader sent more plans ahead of results than agreed")));
  }

  void leader_gone(const Status& why) {
    int expected = kExitDone;
    if (exit_code_.compare_exchange_strong(expected, kExitLeaderGone))
      log_error(concat("rank ", rank_.rank(), " on ", rank_.host(),
                       ": the leader is gone, in: ", rank_.progress().where, ": ", why.message()));
    stop(why);
  }

  Status named(const Status& why) const {
    return why.annotate(concat("rank ", rank_.rank(), " on ", rank_.host()));
  }

  // Any thread; the first failure is the one that is told.
  void fail(const Status& why) {
    int expected = kExitDone;
    if (exit_code_.compare_exchange_strong(expected, kExitRankFailed)) {
      log_error(why.to_string());
      (void)link_.send(FrameType::error, why.message());  // if the leader lives, it should know why
    }
    stop(why);
  }

  void stop(const Status& why) {
    rank_.abort(why);
    plans_.close();
  }

  Rank& rank_;
  ControlLink& link_;
  std::atomic<int> exit_code_{kExitDone};
  PlanQueue plans_;
  Watchdog watchdog_;
  std::thread reader_;
};

}  // namespace

int run_rank_loop(Rank& rank, ControlLink& link, const EndProcess& end_process) {
  return RankLoop(rank, link, end_process).run();
}

}  // namespace cohort
