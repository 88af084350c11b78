// SPDX-License-Identifier: Apache-2.0
// A step on the CPU: everything has happened when launch returns. Its rows go through the layers in
// one lane, or in two whose collectives run while the other one computes (lanes.h).
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "worker/lanes.h"
#include "worker/slot_table.h"
#include "worker/stage_ends.h"
#include "worker/step_runner.h"
#include "worker/token_route.h"
#include "worker/trace.h"

namespace cohort {
namespace {

StageParts with_line(StageParts parts, VerbLine& line, const Where& where) {
  parts.verbs = &line;
  parts.mark = &where.mark();
  return parts;
}

int dp_of(const StageParts& parts) { return parts.mesh.coordinates(parts.rank).dp; }

class CpuStepRunner final : public StepRunner {
 public:
  explicit CpuStepRunner(const StageParts& parts);
  ~CpuStepRunner() override;

  int depth() const override { return 1; }
  Status launch(const StepPlan& plan) override;
  bool finished() const override { return true; }
  Result<std::optional<StepResult>> collect(Duration) override;
  // Its communicators are aborted, and nothing else waits.
  void abort(const Status&) override {}
  std::vector<std::vector<int64_t>> take_expert_load() override {
    return stage_.take_expert_load();
  }

 private:
  void save_trace();
  std::unique_ptr<StageInput> make_input(const StageParts& parts, int64_t max_rows);
  std::unique_ptr<StageOutput> make_output(const StageParts& parts, int64_t max_rows);
  Status compute(const StepPlan& plan, std::vector<SlotResult>& slots);
  void run(const StepPlan& plan, const StepPlan& part, std::vector<SlotResult>& slots);
  int lanes_for(const StepPlan& plan) const;
  void prepare(int lane, const StepPlan& part);
  AttentionBatch batch_of(std::span<const LaneEntry> entries) const;
  Task forward(Lane& lane, Tensor x);
  void publish(const StepPlan& part, std::vector<SlotResult>& slots);
  std::span<const std::unique_ptr<Lane>> used_lanes() const {
    return std::span(lanes_).first(size_t(used_));
  }

  Stream& stream_;
  const StepLimits limits_;
  const int rank_, dp_;
  const TraceOptions trace_options_;
  std::unique_ptr<Trace> trace_;  // null: nobody asked
  VerbLine line_;
  Stage stage_;
  Group pp_;
  SlotTable slots_;
  TokenRoute route_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::optional<StepResult> result_;

  // Of the step that runs.
  int used_ = 1;                     // lanes
  std::vector<int64_t> group_rows_;  // of each dp group
  std::vector<SampledToken> sampled_;
};

CpuStepRunner::CpuStepRunner(const StageParts& parts)
    : stream_(parts.stream),
      limits_(parts.limits),
      rank_(parts.rank),
      dp_(dp_of(parts)),
      trace_options_(parts.trace),
      line_(parts.lanes > 1),
      stage_(with_line(parts, line_, where_)),
      pp_(parts.pp, GroupKind::pp, &line_, &where_.mark()),
      slots_(parts.limits, parts.config.vocab, dp_),
      route_(parts.mesh, parts.rank, Group(parts.tokens, GroupKind::tokens, &line_, &where_.mark()),
             slots_) {
  for (int i = 0; i < parts.lanes; i++) {
    // A step that is not cut goes through the first one.
    const int64_t most = parts.limits.max_rows, half = lane_rows(most, parts.lanes, i).size();
    const int64_t rows = i == 0 ? most : std::max<int64_t>(half, 1);
    lanes_.push_back(std::make_unique<Lane>(rows, stage_.hidden(), make_input(parts, rows),
                                            make_output(parts, rows)));
  }
  if (trace_options_.path.empty()) return;
  trace_ = std::make_unique<Trace>(trace_options_.process, rank_);
  line_.observe(trace_.get());
  where_.listen(trace_.get());
}

CpuStepRunner::~CpuStepRunner() {
  // A step that failed may have left verbs under way, which use what comes after the line.
  line_.stop();
  if (trace_ != nullptr) save_trace();
}

// Once: further steps are not traced.
void CpuStepRunner::save_trace() {
  const Status saved = write_trace(*trace_, trace_options_, rank_);
  if (!saved.ok()) log_warning(saved.message());
  line_.observe(nullptr);
  where_.listen(nullptr);
  trace_.reset();
}

std::unique_ptr<StageInput> CpuStepRunner::make_input(const StageParts& parts, int64_t max_rows) {
  if (!stage_.first() && parts.compress_activations)
    return std::make_unique<ReceiveCompressed>(pp_, max_rows, stage_.hidden());
  if (!stage_.first()) return std::make_unique<ReceiveInput>(pp_);
  return std::make_unique<EmbeddingInput>(stage_.make_embedding(parts), max_rows, slots_);
}

std::unique_ptr<StageOutput> CpuStepRunner::make_output(const StageParts& parts, int64_t max_rows) {
  if (!stage_.last() && parts.compress_activations)
    return std::make_unique<SendCompressed>(pp_, max_rows, stage_.hidden());
  if (!stage_.last()) return std::make_unique<SendOutput>(pp_);
  const int64_t rows = std::min<int64_t>(SampleOutput::kRows, max_rows);
  return std::make_unique<SampleOutput>(stage_.make_head(parts, rows), stage_.samples(),
                                        stage_.first(), slots_);
}

Status CpuStepRunner::launch(const StepPlan& plan) {
  const TimePoint started = std::chrono::steady_clock::now();
  where_.begin_step(plan.step);
  COHORT_RETURN_IF_ERROR(slots_.apply(plan));
  COHORT_RETURN_IF_ERROR(stage_.change_experts(plan.copies));
  StepResult result{.step = plan.step, .slots = {}, .compute_seconds = 0};
  const CommunicationTimes before = line_.times();
  if (!plan.entries.empty()) COHORT_RETURN_IF_ERROR(compute(plan, result.slots));
  where_.set(Operation::idle);
  if (trace_ != nullptr && !plan.entries.empty()) trace_->end_step();
  if (trace_ != nullptr && trace_options_.steps > 0 && trace_->steps() == trace_options_.steps)
    save_trace();
  result.compute_seconds = seconds(std::chrono::steady_clock::now() - started);
  if (!plan.entries.empty())
    times_.add(step_times(result.compute_seconds, before, line_.times(),
                          {.rows = group_rows_[size_t(dp_)], .micro_batches = used_}));
  result_ = std::move(result);
  return {};
}

Result<std::optional<StepResult>> CpuStepRunner::collect(Duration) {
  COHORT_CHECK(result_.has_value());
  std::optional<StepResult> result = std::exchange(result_, std::nullopt);
  if (!stage_.samples()) result.reset();
  return result;
}

Status CpuStepRunner::compute(const StepPlan& plan, std::vector<SlotResult>& slots) {
  try {
    if (limits_.dp == 1)
      run(plan, plan, slots);
    else
      run(plan, part_of(plan, dp_, limits_), slots);
  } catch (const Failure& failure) {
    return failure.status().annotate(concat("step ", plan.step, ", ", where_.text()));
  }
  return {};
}

// part: what this dp group has to do, maybe nothing; then it still serves the others' experts.
void CpuStepRunner::run(const StepPlan& plan, const StepPlan& part,
                        std::vector<SlotResult>& slots) {
  group_rows_ = rows_of(plan, limits_);
  used_ = lanes_for(plan);
  if (trace_ != nullptr) trace_->begin_step(plan.step, group_rows_[size_t(dp_)], used_);
  where_.set(Operation::wait_for_tokens);
  if (stage_.first()) route_.before_step(part);
  for (int lane = 0; lane < used_; lane++) prepare(lane, part);
  if (used_ > 1) line_.open();
  run_in_turns(used_lanes(), line_, where_);
  line_.close();
  if (stage_.samples()) publish(part, slots);
}

// The same on all ranks. A lane without rows of this dp group still has those of another.
int CpuStepRunner::lanes_for(const StepPlan& plan) const {
  const bool enough = std::ranges::max(group_rows_) >= 2;
  return enough ? std::min(plan.micro_batches, int32_t(lanes_.size())) : 1;
}

void CpuStepRunner::prepare(int index, const StepPlan& part) {
  Lane& lane = *lanes_[size_t(index)];
  lane.group_rows.clear();
  for (int64_t rows : group_rows_) lane.group_rows.push_back(lane_rows(rows, used_, index).size());
  cut_entries(part, lane_rows(group_rows_[size_t(dp_)], used_, index), lane.entries);
  lane.batch.emplace(batch_of(lane.entries));
  const int64_t rows = lane.group_rows[size_t(dp_)];
  const Tensor x(lane.x.data(), DType::f32, {rows, stage_.hidden()});
  const Tensor errors(x.f32() + x.elements(), DType::i32, {rows});
  lane.step.emplace(Step{.stream = stream_,
                         .work = stage_.work(index),
                         .where = where_,
                         .batch = *lane.batch,
                         .rows = rows,
                         .row_errors = errors,
                         .group_rows = lane.group_rows});
  lane.task.emplace(forward(lane, x));
  lane.waiting = nullptr;
  lane.where = where_.word();
}

AttentionBatch CpuStepRunner::batch_of(std::span<const LaneEntry> entries) const {
  std::vector<AttentionEntry> queries;
  queries.reserve(entries.size());
  int64_t row = 0;
  for (const LaneEntry& e : entries) {
    queries.push_back({slots_.at(e.entry->slot).blocks.data(), row, e.start, e.length});
    row += e.length;
  }
  return AttentionBatch(stage_.geometry(), std::move(queries), stream_.threads().size());
}

Task CpuStepRunner::forward(Lane& lane, Tensor x) {
  co_await lane.input->fill(lane.entries, *lane.step, x);
  co_await stage_.forward(*lane.step, x);
  co_await lane.output->finish(lane.entries, *lane.step, x);
}

void CpuStepRunner::publish(const StepPlan& part, std::vector<SlotResult>& slots) {
  where_.set(Operation::publish_tokens);
  std::vector<LaneOutcome> outcomes;
  sampled_.clear();
  for (const std::unique_ptr<Lane>& lane : used_lanes()) {
    const std::span<const SampledToken> sampled = lane->output->sampled();
    outcomes.push_back(
        {lane->entries, {lane->step->row_errors.i32(), size_t(lane->step->rows)}, sampled});
    sampled_.insert(sampled_.end(), sampled.begin(), sampled.end());
  }
  report(outcomes, slots);
  route_.publish(part, sampled_);
}

}  // namespace

std::unique_ptr<StepRunner> make_cpu_step_runner(const StageParts& parts) {
  return std::make_unique<CpuStepRunner>(parts);
}

}  // namespace cohort
