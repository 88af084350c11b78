// SPDX-License-Identifier: Apache-2.0
// Samples rows whose logits are cut between the ranks of a tensor-parallel group, as the head
// leaves them. Ranks exchange what can decide (kernels/candidates.h): some dozen bytes for a greedy
// row, some hundred for a drawn one, in place of all logits.
//
//   rank 0   logits of tokens    0 .. 127 │ lists ─┐ all-   ┌─► sums ─┐ all-   ┌─► token
//   rank 1   logits of tokens  128 .. 255 │ lists ─┘ gather └─► sums ─┘ gather └─► token
//
// On the CPU. By the step thread alone.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/function_ref.h"
#include "base/stream.h"
#include "base/task.h"
#include "base/tensor.h"
#include "kernels/candidates.h"
#include "parallel/group.h"
#include "parallel/shard.h"

namespace cohort {

class PartedSampler {
 public:
  // parts: the tokens of every rank of the group, which is borrowed. samples: this rank is the one
  // whose tokens count; others may be left without those of rows that need all logits.
  PartedSampler(std::vector<Slice> parts, int64_t max_rows, Group& group, bool samples);

  // out: one for each row. logits f32 [rows, tokens of this rank]. All ranks are given the same
  // rows, apart from output tokens that they do not know. Arguments are borrowed until it is done.
  Task sample(Stream& stream, Tensor logits, std::span<const PartedRow> rows,
              std::span<SampledToken> out);

 private:
  using Bytes = int64_t (PartedSample::*)(int64_t tokens) const;
  using Fill = FunctionRef<void(size_t row, std::byte* scratch, std::byte* message)>;
  using Take = FunctionRef<void(PartedSample&, std::span<const PartedSample::Told>)>;
  const Slice& mine() const { return parts_[size_t(group_->rank())]; }
  int64_t vocab() const { return parts_.back().end; }
  LogitPart part(Tensor logits, size_t row) const;

  // This rank's messages about all rows, one after the other, and what all ranks have to say.
  void fill(Stream& stream, size_t rows, Bytes bytes, Fill fill);
  Started gather();
  void take(size_t rows, Bytes bytes, Take take);

  void draw(Stream& stream, Tensor logits, size_t rows);
  void take_draws(size_t rows);
  size_t owner_of(int64_t block) const;

  const std::vector<Slice> parts_;
  Group* const group_;
  const bool samples_, whole_blocks_;
  std::vector<PartedSample> rows_;
  Buffer adjusted_;            // f32 [max_rows, tokens of this rank]
  std::vector<float> logits_;  // of one row that is whole
  std::vector<std::byte> outgoing_, gathered_;
  std::vector<size_t> offsets_;  // of the rows' messages in outgoing_
  std::vector<int64_t> bytes_;   // of every rank's messages
  std::vector<PartedSample::Told> told_;
};

}  // namespace cohort
