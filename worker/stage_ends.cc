// SPDX-License-Identifier: Apache-2.0
#include "worker/stage_ends.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "worker/compressed_rows.h"

namespace cohort {
namespace {

// x and the error codes right behind it (step_runner.cc lays them out so).
int64_t message_bytes(const Step& step, Tensor x) {
  COHORT_CHECK_EQ(static_cast<void*>(x.f32() + x.elements()), step.row_errors.data());
  return x.bytes() + step.row_errors.bytes();
}

// Rows and their error codes.
int64_t compressed_message(int64_t rows, int64_t hidden) {
  return compressed_bytes(rows, hidden) + rows * int64_t(sizeof(int32_t));
}

}  // namespace

Task EmbeddingInput::fill(std::span<const LaneEntry> entries, Step& step, Tensor x) {
  step.where.set(Operation::embedding);
  auto id = ids_.begin();
  for (const LaneEntry& e : entries)
    id = std::copy_n(slots_.at(e.entry->slot).tokens.begin() + e.start, e.length, id);
  const Tensor ids(ids_.data(), DType::i32, {step.rows});
  co_await embedding_.forward(step.stream, step.work.linear, x, ids);
  std::fill_n(step.row_errors.i32(), step.rows, row_error::kNone);
  ops::find_not_finite(step.stream, step.row_errors, x, row_error::kEmbedding);
}

Task ReceiveInput::fill(std::span<const LaneEntry>, Step& step, Tensor x) {
  step.where.set(Operation::receive);
  co_await pp_.recv(x.data(), message_bytes(step, x), pp_.rank() - 1);
}

Task SendOutput::finish(std::span<const LaneEntry>, Step& step, Tensor x) {
  step.where.set(Operation::send);
  co_await pp_.send(x.data(), message_bytes(step, x), pp_.rank() + 1);
}

ReceiveCompressed::ReceiveCompressed(Group pp, int64_t max_rows, int64_t hidden)
    : pp_(pp), message_(size_t(compressed_message(max_rows, hidden))) {}

Task ReceiveCompressed::fill(std::span<const LaneEntry>, Step& step, Tensor x) {
  step.where.set(Operation::receive);
  const int64_t bytes = compressed_message(x.dim(0), x.dim(1));
  co_await pp_.recv(message_.data(), bytes, pp_.rank() - 1);
  expand(x, message_.data());
  const int64_t errors = step.row_errors.bytes();
  std::memcpy(step.row_errors.data(), message_.data() + bytes - errors, size_t(errors));
}

SendCompressed::SendCompressed(Group pp, int64_t max_rows, int64_t hidden)
    : pp_(pp), message_(size_t(compressed_message(max_rows, hidden))) {}

Task SendCompressed::finish(std::span<const LaneEntry>, Step& step, Tensor x) {
  step.where.set(Operation::send);
  const int64_t bytes = compressed_message(x.dim(0), x.dim(1)), errors = step.row_errors.bytes();
  compress(message_.data(), x);
  std::memcpy(message_.data() + bytes - errors, step.row_errors.data(), size_t(errors));
  co_await pp_.send(message_.data(), bytes, pp_.rank() + 1);
}

SampleOutput::SampleOutput(Head head, bool samples, bool tokens_known, const SlotTable& slots)
    : head_(std::move(head)), samples_(samples), tokens_known_(tokens_known), slots_(slots) {
  if (head_.parts().size() > 1)
    sampler_ = std::make_unique<PartedSampler>(head_.parts(), kRows, head_.group(), samples);
}

Task SampleOutput::finish(std::span<const LaneEntry> entries, Step& step, Tensor x) {
  find_rows(entries);
  for (size_t first = 0; first < rows_.size(); first += kRows) {
    const size_t n = std::min(rows_.size() - first, size_t(kRows));
    step.where.set(Operation::head);
    const Tensor rows(rows_.data() + first, DType::i32, {int64_t(n)});
    const Tensor logits = head_.part(step, x, rows);
    const auto out = std::span(sampled_).subspan(first, n);
    step.where.set(Operation::sample);
    if (sampler_ == nullptr)
      ops::sample(step.stream, out, logits, std::span(sample_rows_).subspan(first, n));
    else
      co_await sampler_->sample(step.stream, logits, std::span(parted_rows_).subspan(first, n),
                                out);
  }
}

void SampleOutput::find_rows(std::span<const LaneEntry> entries) {
  rows_.clear();
  sample_rows_.clear();
  parted_rows_.clear();
  int64_t end = 0;
  for (const LaneEntry& e : entries) {
    end += e.length;
    if (!e.sample) continue;
    rows_.push_back(int32_t(end - 1));
    const Slot& slot = slots_.at(e.entry->slot);
    const auto tokens = std::span<const int32_t>(slot.tokens);
    const size_t prompt = size_t(slot.prompt_tokens);
    sample_rows_.push_back({&slot.sampling, tokens.first(prompt), tokens.subspan(prompt)});
    const int64_t known = int64_t(tokens.size());
    parted_rows_.push_back({.row = sample_rows_.back(),
                            .outputs = uint64_t(e.start + e.length - slot.prompt_tokens),
                            .tokens_known = tokens_known_});
    if (samples_ && known != e.start + e.length)
      throw Failure(
          internal_error(concat("the plan samples slot ", e.entry->slot, " after position ",
                                e.start + e.length - 1, ", but ", known, " tokens are known")));
  }
  sampled_.assign(rows_.size(), SampledToken{});
}

void report(std::span<const LaneOutcome> lanes, std::vector<SlotResult>& slots) {
  int32_t error = row_error::kNone;  // of the entry, from an earlier lane
  for (size_t lane = 0; lane < lanes.size(); lane++) {
    const auto& [entries, row_errors, sampled] = lanes[lane];
    size_t row = 0, draw = 0;
    for (size_t i = 0; i < entries.size(); i++) {
      const LaneEntry& e = entries[i];
      const std::span errors = row_errors.subspan(row, size_t(e.length));
      row += size_t(e.length);
      const auto failed =
          std::ranges::find_if(errors, [](int32_t code) { return code != row_error::kNone; });
      if (error == row_error::kNone && failed != errors.end()) error = *failed;
      if (e.start + e.length != e.entry->start + e.entry->length) continue;  // the next has more
      SlotResult result{.slot = e.entry->slot, .sampled = {}, .error = {}};
      if (e.sample) result.sampled = sampled[draw++];
      if (error != row_error::kNone)
        result.error = row_error::text(error);
      else if (!result.sampled.finite)
        result.error = "final logits: value is not finite";
      if (e.sample || !result.error.empty()) slots.push_back(std::move(result));
      error = row_error::kNone;
    }
  }
}

}  // namespace cohort
