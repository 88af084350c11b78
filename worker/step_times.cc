// SPDX-License-Identifier: Apache-2.0
#include "worker/step_times.h"

#include <algorithm>

namespace cohort {

StepTimes& StepTimes::operator+=(const StepTimes& other) {
  compute += other.compute;
  communication += other.communication;
  hidden += other.hidden;
  idle += other.idle;
  bytes_sent += other.bytes_sent;
  for (size_t g = 0; g < groups.size(); g++) {
    groups[g].calls += other.groups[g].calls;
    groups[g].bytes_sent += other.groups[g].bytes_sent;
    groups[g].seconds += other.groups[g].seconds;
    groups[g].hidden += other.groups[g].hidden;
  }
  steps += other.steps;
  rows += other.rows;
  micro_batches += other.micro_batches;
  return *this;
}

StepTimes step_times(double seconds, const CommunicationTimes& before,
                     const CommunicationTimes& after, StepSize size) {
  StepTimes step;
  step.idle = after.idle - before.idle;
  step.compute = std::max(0.0, seconds - step.idle);
  for (size_t g = 0; g < step.groups.size(); g++) {
    const VerbTotals &a = before.groups[g], &b = after.groups[g];
    step.groups[g] = {b.calls - a.calls, b.bytes_sent - a.bytes_sent, b.seconds - a.seconds,
                      b.hidden - a.hidden};
    step.communication += step.groups[g].seconds;
    step.hidden += step.groups[g].hidden;
    step.bytes_sent += step.groups[g].bytes_sent;
  }
  step.steps = 1;
  step.rows = size.rows;
  step.micro_batches = size.micro_batches;
  return step;
}

void StepTimesBoard::add(const StepTimes& step) {
  const std::lock_guard lock(mutex_);
  total_ += step;
  last_ = step;
}

StepTimes StepTimesBoard::total() const {
  const std::lock_guard lock(mutex_);
  return total_;
}

StepTimes StepTimesBoard::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

}  // namespace cohort
