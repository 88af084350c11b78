// SPDX-License-Identifier: Apache-2.0
// A step on the CPU: everything has happened when launch returns.
#include <optional>
#include <utility>
#include <vector>

#include "worker/slot_table.h"
#include "worker/stage_ends.h"
#include "worker/step_runner.h"
#include "worker/token_route.h"

namespace cohort {
namespace {

class CpuStepRunner final : public StepRunner {
 public:
  explicit CpuStepRunner(const StageParts& parts);

  int depth() const override { return 1; }
  Status launch(const StepPlan& plan) override;
  bool finished() const override { return true; }
  Result<std::optional<StepResult>> collect(Duration) override;
  // Its communicators are aborted, and nothing else waits.
  void abort(const Status&) override {}

 private:
  std::unique_ptr<StageInput> make_input(const StageParts& parts);
  std::unique_ptr<StageOutput> make_output(const StageParts& parts);
  AttentionBatch batch_of(const StepPlan& plan) const;
  Status compute(const StepPlan& plan, std::vector<SlotResult>& slots);
  Task forward(const StepPlan& plan, Step& step, std::vector<SlotResult>& slots);

  Stream& stream_;
  Stage stage_;
  Group pp_;
  SlotTable slots_;
  TokenRoute route_;
  Buffer x_;  // the residual stream: f32 [tokens, hidden], then i32 [tokens] error codes
  std::unique_ptr<StageInput> input_;
  std::unique_ptr<StageOutput> output_;
  std::optional<StepResult> result_;
};

CpuStepRunner::CpuStepRunner(const StageParts& parts)
    : stream_(parts.stream),
      stage_(parts),
      pp_(parts.pp),
      slots_(parts.limits, parts.config.vocab),
      route_(parts.mesh, parts.rank, Group(parts.tokens), slots_),
      x_(size_t(parts.limits.max_rows) *
         (size_t(stage_.hidden()) * sizeof(float) + sizeof(int32_t))),
      input_(make_input(parts)),
      output_(make_output(parts)) {}

std::unique_ptr<StageInput> CpuStepRunner::make_input(const StageParts& parts) {
  if (!stage_.first()) return std::make_unique<ReceiveInput>(pp_);
  return std::make_unique<EmbeddingInput>(stage_.make_embedding(parts), parts.limits.max_rows,
                                          slots_, route_);
}

std::unique_ptr<StageOutput> CpuStepRunner::make_output(const StageParts& parts) {
  if (!stage_.last()) return std::make_unique<SendOutput>(pp_);
  const int64_t rows = std::min<int64_t>(SampleOutput::kRows, parts.limits.max_rows);
  return std::make_unique<SampleOutput>(stage_.make_head(parts, rows), stage_.samples(), slots_,
                                        route_);
}

AttentionBatch CpuStepRunner::batch_of(const StepPlan& plan) const {
  std::vector<AttentionEntry> entries;
  entries.reserve(plan.entries.size());
  int64_t row = 0;
  for (const StepEntry& entry : plan.entries) {
    entries.push_back({slots_.at(entry.slot).blocks.data(), row, entry.start, entry.length});
    row += entry.length;
  }
  return AttentionBatch(stage_.geometry(), std::move(entries), stream_.threads().size());
}

Status CpuStepRunner::launch(const StepPlan& plan) {
  const TimePoint started = std::chrono::steady_clock::now();
  COHORT_RETURN_IF_ERROR(slots_.apply(plan));
  StepResult result{.step = plan.step, .slots = {}, .compute_seconds = 0};
  if (!plan.entries.empty()) COHORT_RETURN_IF_ERROR(compute(plan, result.slots));
  where_.set(Operation::idle);
  result.compute_seconds = seconds(std::chrono::steady_clock::now() - started);
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
  const AttentionBatch batch = batch_of(plan);
  const int64_t rows = plan.rows();
  Step step{stream_, stage_.work(),
            where_,  batch,
            rows,    Tensor(x_.as<float>() + rows * stage_.hidden(), DType::i32, {rows})};
  try {
    Task task = forward(plan, step, slots);
    task.start();
    task.result();
  } catch (const Failure& failure) {
    return failure.status().annotate(concat("step ", plan.step, ", ", where_.text()));
  }
  return {};
}

Task CpuStepRunner::forward(const StepPlan& plan, Step& step, std::vector<SlotResult>& slots) {
  const Tensor x(x_.data(), DType::f32, {step.rows, stage_.hidden()});
  co_await input_->fill(plan, step, x);
  co_await stage_.forward(step, x);
  co_await output_->finish(plan, step, x, slots);
}

}  // namespace

std::unique_ptr<StepRunner> make_cpu_step_runner(const StageParts& parts) {
  return std::make_unique<CpuStepRunner>(parts);
}

}  // namespace cohort
