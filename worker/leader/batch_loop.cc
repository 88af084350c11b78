// SPDX-License-Identifier: Apache-2.0
#include "worker/leader/batch_loop.h"

#include <utility>

#include "base/log.h"

namespace cohort {

BatchLoop::BatchLoop(StepExecutor& executor, EventSink& sink, BatchLoopOptions options)
    : executor_(executor),
      sink_(sink),
      options_(std::move(options)),
      inbox_(options_.inbox_capacity),
      scheduler_(executor.limits(), options_.epoch, options_.scheduler) {
  load_.scheduler = scheduler_.load();
}

BatchLoop::~BatchLoop() {
  stop();
  if (thread_.joinable()) thread_.join();
}

void BatchLoop::start() {
  thread_ = std::thread([this] {
    end_ = run();
    inbox_.close();
    ended_ = true;
  });
}

void BatchLoop::stop() { inbox_.close(); }

Status BatchLoop::wait() {
  if (thread_.joinable()) thread_.join();
  return end_;
}

Status BatchLoop::run() {
  while (!inbox_.closed()) {
    const bool idle = scheduler_.idle();
    if (idle) COHORT_RETURN_IF_ERROR(rest());
    admit(inbox_.take(idle ? options_.health_interval : Duration(0)));
    COHORT_RETURN_IF_ERROR(submit_plans());
    publish();
    if (scheduler_.in_flight() == 0) {
      // Nothing is held back for blocks that nobody will give: see Scheduler::plan.
      if (!scheduler_.idle()) return stuck();
      continue;
    }
    COHORT_RETURN_IF_ERROR(take_result());
    publish();
  }
  // Results of submitted steps are taken, so that the ranks end between steps.
  while (scheduler_.in_flight() > 0) COHORT_RETURN_IF_ERROR(take_result());
  return Status::ok_status();
}

void BatchLoop::admit(std::vector<Command> commands) {
  for (Command& command : commands) {
    if (const auto* cancel = std::get_if<CancelRequest>(&command)) {
      if (!scheduler_.cancel(cancel->id)) continue;
      refused_.push_back({.id = cancel->id, .finish = FinishReason::cancelled});
      continue;
    }
    auto& request = std::get<SequenceRequest>(command);
    ++submits_;
    const SequenceId id = request.id;
    const auto index = static_cast<int32_t>(request.output_prefix.size());
    const Status status = scheduler_.admit(std::move(request));
    if (status.ok()) continue;
    refused_.push_back({.id = id,
                        .index = index,
                        .finish = FinishReason::error,
                        .error = status.message(),
                        .refused = status.code()});
  }
}

Status BatchLoop::submit_plans() {
  const auto completing = [this](StepPlan& plan) { complete(plan); };
  while (auto plan = scheduler_.plan(row_budget(), completing)) {
    if (options_.recorder) COHORT_RETURN_IF_ERROR(options_.recorder->add(*plan));
    COHORT_RETURN_IF_ERROR(executor_.submit(*plan));
    rows_in_flight_.push_back(most_rows(*plan, executor_.limits()));
    checked_idle_ = false;
  }
  return Status::ok_status();
}

void BatchLoop::complete(StepPlan& plan) const {
  plan.micro_batches = options_.split(plan);
  plan.copies = options_.copies();
}

Status BatchLoop::take_result() {
  COHORT_ASSIGN_OR_RETURN(const StepResult result, executor_.next_result());
  if (options_.recorder) COHORT_RETURN_IF_ERROR(options_.recorder->add(result));
  COHORT_RETURN_IF_ERROR(scheduler_.commit(result));
  times_.add(rows_in_flight_.front(), result.compute_seconds);
  rows_in_flight_.pop_front();
  return Status::ok_status();
}

void BatchLoop::publish() {
  std::vector<SequenceEvent> events = std::exchange(refused_, {});
  for (SequenceEvent& event : scheduler_.take_events()) events.push_back(std::move(event));
  {
    const std::lock_guard lock(mutex_);
    load_ = report();
  }
  if (!events.empty()) sink_.publish(std::move(events));
}

// Nothing is to do: once it was checked that no block was lost, only the ranks' health matters.
Status BatchLoop::rest() {
  if (!std::exchange(checked_idle_, true))
    COHORT_RETURN_IF_ERROR(scheduler_.check_integrity().annotate("KV blocks after the last step"));
  return options_.health();
}

Status BatchLoop::stuck() const {
  const SchedulerLoad load = scheduler_.load();
  return internal_error(concat("no step is under way and none can be planned for ", load.running,
                               " running and ", load.waiting, " waiting sequences; of ",
                               load.blocks.total, " KV blocks ", load.blocks.held, " are held"));
}

int32_t BatchLoop::row_budget() const {
  const int32_t most = executor_.limits().max_rows, decodes = scheduler_.decodes();
  return decodes == 0 ? most : times_.tokens_within(options_.prefill_slowdown, decodes, most);
}

LoadReport BatchLoop::report() const {
  return {.scheduler = scheduler_.load(),
          .step_seconds = times_.step_seconds(),
          .token_seconds = times_.token_seconds() / executor_.limits().dp,
          .submits = submits_};
}

LoadReport BatchLoop::load() const {
  const std::lock_guard lock(mutex_);
  return load_;
}

}  // namespace cohort
