// SPDX-License-Identifier: Apache-2.0
#include "worker/stage_ends.h"

#include <algorithm>
#include <utility>

namespace cohort {
namespace {

// x and the error codes right behind it (step_runner.cc lays them out so).
int64_t message_bytes(const Step& step, Tensor x) {
  COHORT_CHECK_EQ(static_cast<void*>(x.f32() + x.elements()), step.row_errors.data());
  return x.bytes() + step.row_errors.bytes();
}

}  // namespace

Task EmbeddingInput::fill(const StepPlan& plan, Step& step, Tensor x) {
  step.where.set(Operation::wait_for_tokens);
  route_.before_step(plan);
  step.where.set(Operation::embedding);
  auto id = ids_.begin();
  for (const StepEntry& entry : plan.entries)
    id = std::copy_n(slots_.at(entry.slot).tokens.begin() + entry.start, entry.length, id);
  const Tensor ids(ids_.data(), DType::i32, {step.rows});
  co_await embedding_.forward(step.stream, step.work.linear, x, ids);
  std::fill_n(step.row_errors.i32(), step.rows, row_error::kNone);
  ops::find_not_finite(step.stream, step.row_errors, x, row_error::kEmbedding);
}

Task ReceiveInput::fill(const StepPlan&, Step& step, Tensor x) {
  step.where.set(Operation::receive);
  co_await pp_.recv(x.data(), message_bytes(step, x), pp_.rank() - 1);
}

Task SendOutput::finish(const StepPlan&, Step& step, Tensor x, std::vector<SlotResult>&) {
  step.where.set(Operation::send);
  co_await pp_.send(x.data(), message_bytes(step, x), pp_.rank() + 1);
}

SampleOutput::SampleOutput(Head head, bool samples, const SlotTable& slots, TokenRoute& route)
    : head_(std::move(head)),
      samples_(samples),
      slots_(slots),
      route_(route),
      logits_(size_t(kRows * head_.vocab()) * sizeof(float)) {}

Task SampleOutput::finish(const StepPlan& plan, Step& step, Tensor x,
                          std::vector<SlotResult>& slots) {
  find_rows(plan);
  for (size_t first = 0; first < rows_.size(); first += kRows) {
    const size_t n = std::min(rows_.size() - first, size_t(kRows));
    const Tensor logits(logits_.data(), DType::f32, {int64_t(n), head_.vocab()});
    step.where.set(Operation::head);
    const Tensor rows(rows_.data() + first, DType::i32, {int64_t(n)});
    co_await head_.forward(step, logits, x, rows);
    if (samples_) draw(step, logits, first);
  }
  if (!samples_) co_return;
  step.where.set(Operation::publish_tokens);
  report(plan, step, slots);
  route_.publish(plan, sampled_);
}

void SampleOutput::find_rows(const StepPlan& plan) {
  rows_.clear();
  sample_rows_.clear();
  int64_t end = 0;
  for (const StepEntry& entry : plan.entries) {
    end += entry.length;
    if (!entry.sample) continue;
    rows_.push_back(int32_t(end - 1));
    const Slot& slot = slots_.at(entry.slot);
    const auto tokens = std::span<const int32_t>(slot.tokens);
    const size_t prompt = size_t(slot.prompt_tokens);
    sample_rows_.push_back({&slot.sampling, tokens.first(prompt), tokens.subspan(prompt)});
    const int64_t known = int64_t(tokens.size());
    if (samples_ && known != entry.start + entry.length)
      throw Failure(internal_error(
          concat("the plan of step ", plan.step, " samples slot ", entry.slot, " after position ",
                 entry.start + entry.length - 1, ", but ", known, " tokens are known")));
  }
  sampled_.assign(rows_.size(), SampledToken{});
}

void SampleOutput::draw(Step& step, Tensor logits, size_t first) {
  step.where.set(Operation::sample);
  const size_t n = size_t(logits.dim(0));
  ops::sample(step.stream, std::span(sampled_).subspan(first, n), logits,
              std::span(sample_rows_).subspan(first, n));
}

// Of the entries that sample, in plan order; and failed ones.
void SampleOutput::report(const StepPlan& plan, const Step& step, std::vector<SlotResult>& slots) {
  size_t row = 0, draw = 0;
  for (const StepEntry& entry : plan.entries) {
    const std::span errors(step.row_errors.i32() + row, size_t(entry.length));
    row += size_t(entry.length);
    const auto failed = std::find_if(errors.begin(), errors.end(),
                                     [](int32_t code) { return code != row_error::kNone; });
    SlotResult result{.slot = entry.slot, .sampled = {}, .error = {}};
    if (entry.sample) result.sampled = sampled_[draw++];
    if (failed != errors.end())
      result.error = row_error::text(*failed);
    else if (!result.sampled.finite)
      result.error = "final logits: value is not finite";
    if (entry.sample || !result.error.empty()) slots.push_back(std::move(result));
  }
}

}  // namespace cohort
