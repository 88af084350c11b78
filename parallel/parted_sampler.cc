// SPDX-License-Identifier: Apache-2.0
#include "parallel/parted_sampler.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/cpu/state.h"
#include "kernels/cpu/vocabulary.h"
#include "kernels/ops.h"

namespace cohort {
namespace {

bool begin_with_blocks(const std::vector<Slice>& parts) {
  return std::ranges::all_of(parts, [](const Slice& s) { return s.begin % cpu::kTokenBlock == 0; });
}

}  // namespace

PartedSampler::PartedSampler(std::vector<Slice> parts, int64_t max_rows, Group& group, bool samples)
    : parts_(std::move(parts)),
      group_(&group),
      samples_(samples),
      whole_blocks_(begin_with_blocks(parts_)),
      adjusted_(size_t(max_rows * mine().size()) * sizeof(float)),
      bytes_(parts_.size()),
      told_(parts_.size()) {
  COHORT_CHECK_EQ(int(parts_.size()), group.size());
}

LogitPart PartedSampler::part(Tensor logits, size_t row) const {
  const auto width = size_t(mine().size());
  return {.raw = {logits.f32() + row * width, width},
          .adjusted = adjusted_.as<float>() + row * width,
          .first = int32_t(mine().begin)};
}

Task PartedSampler::sample(Stream& stream, Tensor logits, std::span<const PartedRow> rows,
                           std::span<SampledToken> out) {
  const size_t n = rows.size();
  const Isa isa = stream.isa();
  rows_.resize(std::max(rows_.size(), n));
  for (size_t i = 0; i < n; i++) rows_[i].start(rows[i], vocab(), whole_blocks_);
  fill(stream, n, &PartedSample::list_bytes, [&](size_t i, std::byte* scratch, std::byte* message) {
    rows_[i].list(part(logits, i), isa, scratch, message);
  });
  co_await gather();
  take(n, &PartedSample::list_bytes,
       [](PartedSample& row, std::span<const PartedSample::Told> told) { row.take_lists(told); });
  fill(stream, n, &PartedSample::sum_bytes, [&](size_t i, std::byte* scratch, std::byte* message) {
    rows_[i].sum(part(logits, i), isa, scratch, message);
  });
  co_await gather();
  take(n, &PartedSample::sum_bytes,
       [](PartedSample& row, std::span<const PartedSample::Told> told) { row.take_sums(told); });
  for (size_t i = 0; i < n; i++) rows_[i].conclude(isa);
  draw(stream, logits, n);
  co_await gather();
  take_draws(n);
  for (size_t i = 0; i < n; i++) {
    out[i] = std::move(rows_[i].result());
    if (!rows_[i].needs().whole) continue;
    logits_.resize(size_t(vocab()));
    for (size_t r = 0; r < parts_.size(); r++)
      bytes_[r] = parts_[r].size() * int64_t(sizeof(float));
    const Tensor row(part(logits, i).raw.data(), DType::f32, {mine().size()});
    const Tensor whole(logits_.data(), DType::f32, {1, vocab()});
    co_await group_->all_gather(row, logits_.data(), bytes_);
    if (samples_) ops::sample(stream, out.subspan(i, 1), whole, {&rows[i].row, 1});
  }
}

void PartedSampler::fill(Stream& stream, size_t rows, Bytes bytes, Fill fill) {
  const int64_t tokens = mine().size();
  offsets_.assign(1, 0);
  for (size_t i = 0; i < rows; i++)
    offsets_.push_back(offsets_.back() + size_t((rows_[i].*bytes)(tokens)));
  outgoing_.resize(offsets_.back());
  for (size_t r = 0; r < parts_.size(); r++) {
    bytes_[r] = 0;
    for (size_t i = 0; i < rows; i++) bytes_[r] += (rows_[i].*bytes)(parts_[r].size());
  }
  if (outgoing_.empty()) return;
  cpu::State& state = cpu::State::of(stream);
  state.reserve(PartedSample::scratch_bytes(tokens));
  const auto some = [&](size_t begin, size_t end, int thread) {
    for (size_t i = begin; i < end; i++)
      if (offsets_[i] < offsets_[i + 1]) fill(i, state.scratch(thread), &outgoing_[offsets_[i]]);
  };
  if (rows == 1) return some(0, 1, 0);
  const auto threads = size_t(stream.threads().size());
  stream.threads().run([&](int thread) {
    some(rows * size_t(thread) / threads, rows * size_t(thread + 1) / threads, thread);
  });
}

Started PartedSampler::gather() {
  int64_t total = 0;
  for (int64_t bytes : bytes_) total += bytes;
  gathered_.resize(size_t(total));
  if (total == 0) return Started(Status());  // as all ranks know
  const Tensor message(outgoing_.data(), DType::i32, {int64_t(outgoing_.size() / sizeof(int32_t))});
  return group_->all_gather(message, gathered_.data(), bytes_);
}

void PartedSampler::take(size_t rows, Bytes bytes, Take take) {
  if (gathered_.empty()) return;
  const std::byte* at = gathered_.data();
  for (size_t r = 0; r < parts_.size(); at += bytes_[r++]) told_[r] = {at, parts_[r].size()};
  for (size_t i = 0; i < rows; i++) {
    take(rows_[i], told_);
    for (PartedSample::Told& told : told_) told.message += (rows_[i].*bytes)(told.tokens);
  }
}

size_t PartedSampler::owner_of(int64_t block) const {
  size_t owner = 0;
  while (block * cpu::kTokenBlock >= parts_[owner].end) owner++;
  return owner;
}

// Of the rows whose tokens are to be drawn, each by who has the block.
void PartedSampler::draw(Stream& stream, Tensor logits, size_t rows) {
  outgoing_.clear();
  std::ranges::fill(bytes_, 0);
  for (size_t i = 0; i < rows; i++) {
    if (rows_[i].block() < 0) continue;
    const size_t owner = owner_of(rows_[i].block());
    bytes_[owner] += int64_t(sizeof(Candidate));
    if (int(owner) != group_->rank()) continue;
    const Candidate drawn = rows_[i].draw(part(logits, i), stream.isa());
    const auto* bytes = reinterpret_cast<const std::byte*>(&drawn);
    outgoing_.insert(outgoing_.end(), bytes, bytes + sizeof drawn);
  }
}

void PartedSampler::take_draws(size_t rows) {
  if (gathered_.empty()) return;
  const std::byte* at = gathered_.data();
  for (size_t r = 0; r < parts_.size(); at += bytes_[r++]) told_[r] = {at, 0};
  for (size_t i = 0; i < rows; i++) {
    if (rows_[i].block() < 0) continue;
    PartedSample::Told& told = told_[owner_of(rows_[i].block())];
    Candidate drawn;
    std::memcpy(&drawn, told.message, sizeof drawn);
    told.message += sizeof drawn;
    rows_[i].take_drawn(drawn);
  }
}

}  // namespace cohort
