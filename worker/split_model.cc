// SPDX-License-Identifier: Apache-2.0
#include "worker/split_model.h"

#include <algorithm>

#include "worker/lanes.h"

namespace cohort {
namespace {

// A gain below this is within what steps differ by.
constexpr double kLeastGain = 0.05;
// The newest step's part of what is averaged.
constexpr double kNewest = 0.1;
// Each turn wakes a thread.
constexpr double kTurn = 10e-6;
// What was lost is forgotten by half in some 700 whole steps, so that splitting is tried again.
constexpr double kForget = 0.999;
// The very first steps touch memory that nobody has touched yet.
constexpr int64_t kFirstSteps = 4;
// What is assumed while steps of one size only are known. Processors read a weight in the time in
// which they compute some 4 to 16 rows with it; the larger number makes cutting look dearer.
constexpr double kWeightRows = 16;
// Starting a collective, where its time is not known to depend on its size.
constexpr double kCall = 50e-6;

// Collectives that can be overlapped: sampled tokens travel between steps.
VerbTotals overlappable(const StepTimes& step) {
  VerbTotals sum;
  for (const GroupKind kind : {GroupKind::tp, GroupKind::dp, GroupKind::pp}) {
    const VerbTotals& group = step.groups[size_t(kind)];
    sum.calls += group.calls;
    sum.bytes_sent += group.bytes_sent;
    sum.seconds += group.seconds;
  }
  return sum;
}

// fixed: the part of a mean step's time that does not depend on its size, as long as only that
// size is known.
double line(const StepTimeModel& model, double n, double fixed) {
  if (model.knows_slope()) return model.step_seconds() + model.token_seconds() * n;
  const double mean = model.mean_tokens();
  return mean == 0 ? 0 : fixed + (model.mean_seconds() - fixed) * n / mean;
}

}  // namespace

void SplitModel::learn(const StepTimes& step) {
  if (step.rows < 1) return;
  const VerbTotals sent = overlappable(step);
  if (sent.calls == 0) return;
  const double passes = double(step.micro_batches);
  collectives_.add(sent.bytes_sent / sent.calls, sent.seconds / double(sent.calls));
  const double weight = steps_ == 0 ? 1 : kNewest;
  calls_ += weight * (double(sent.calls) / passes - calls_);
  row_bytes_ += weight * (double(sent.bytes_sent) / double(step.rows) - row_bytes_);
  steps_++;
  if (step.micro_batches == 1) {
    compute_.add(step.rows, step.compute);
    lost_seconds_ *= kForget;
  } else {
    const double lost = (step.seconds() - overlapped(step.rows)) / (passes * calls_);
    lost_seconds_ += kNewest * (std::max(lost, 0.0) - lost_seconds_);
  }
}

int SplitModel::micro_batches(int64_t rows) const {
  if (rows < 2 || steps_ < kFirstSteps) return 1;
  return split_seconds(rows) < (1 - kLeastGain) * whole_seconds(rows) ? 2 : 1;
}

double SplitModel::compute(int64_t rows) const {
  const double weights = kWeightRows / (compute_.mean_tokens() + kWeightRows);
  return line(compute_, double(rows), weights * compute_.mean_seconds());
}

double SplitModel::communication(int64_t rows) const {
  if (calls_ == 0) return 0;
  const double call = std::min(kCall, collectives_.mean_seconds() / 2);
  return calls_ * line(collectives_, row_bytes_ * double(rows) / calls_, call);
}

double SplitModel::whole_seconds(int64_t rows) const { return compute(rows) + communication(rows); }

double SplitModel::split_seconds(int64_t rows) const {
  return overlapped(rows) + 2 * calls_ * lost_seconds_;
}

// Between two collectives of a micro-batch the other one's piece is computed. Either computing is
// the bottleneck, and one collective is left at the end; or collectives are, after one piece.
double SplitModel::overlapped(int64_t rows) const {
  if (calls_ == 0) return whole_seconds(rows);
  const int64_t half = lane_rows(rows, 2, 0).size();
  const double computed = compute(half) + calls_ * kTurn, sent = communication(half);
  return std::max(2 * computed + sent / calls_, computed / calls_ + 2 * sent);
}

std::function<int(const StepPlan&)> split_policy(Overlap overlap, bool can_split,
                                                 const StepLimits& limits,
                                                 const StepTimesBoard& times) {
  if (overlap == Overlap::off || !can_split) return [](const StepPlan&) { return 1; };
  if (overlap == Overlap::on)
    return [limits](const StepPlan& plan) { return most_rows(plan, limits) >= 2 ? 2 : 1; };
  struct State {
    SplitModel model;
    int64_t seen = 0;
  };
  return [limits, &times, state = std::make_shared<State>()](const StepPlan& plan) {
    // Steps that came and went between two plans are not missed.
    if (const int64_t steps = times.total().steps; steps != state->seen) {
      state->seen = steps;
      state->model.learn(times.last());
    }
    return state->model.micro_batches(most_rows(plan, limits));
  };
}

}  // namespace cohort
