// SPDX-License-Identifier: Apache-2.0
// Sampling where every rank has the logits of some of the tokens, its part of each row: ranks tell
// each other what can decide in place of all logits. Tokens and log-probabilities are those of
// ops::sample, bit for bit (docs/arithmetic.md section 6). On the CPU.
//
//   lists   a part's largest logits, and its most likely tokens   decide greedy rows and top_k
//   sums    of weights over blocks of 256 tokens                  decide top_p, log-probabilities,
//                                                                 and the block of a draw
//   draw    the token within that block, from who has it
//
// Everybody is told the same and comes to the same conclusions, so nobody needs to be asked. Where
// the tokens that may decide are too many to be told, the row is `whole`: who samples needs all
// logits.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/cpu.h"
#include "kernels/sampling.h"

namespace cohort {

// A row as all ranks know it.
struct PartedRow {
  SampleRow row;
  uint64_t outputs = 0;      // tokens of the output: the counter of the draw
  bool tokens_known = true;  // false: row.output may lack some of them here
};

// A token, its logit as it is sampled from, and as it came.
struct Candidate {
  int32_t token = 0;
  float logit = 0, raw = 0;
};

// A rank's part of a row: the logits of tokens first, first + 1, ...
struct LogitPart {
  std::span<const float> raw;
  float* adjusted;  // as long; memory of the caller for rows that need it, kept until the end
  int32_t first;
};

// What a row needs. It follows from the row and the layout alone.
struct RowNeeds {
  bool whole = false;
  bool adjusted = false;                // logits sampled from are others than the raw ones
  bool sums = false, raw_sums = false;  // of the weights drawn from; of those of log-probabilities
  int64_t best = 0, likely = 0;         // so many tokens, by logits sampled from; by raw logits
};

// One row. The same object serves one row after the other and keeps its memory.
class PartedSample {
 public:
  // Above so many tokens to be told a row is whole.
  static constexpr int64_t kMostListed = 1024;

  // vocab: tokens of all parts. whole_blocks: every part begins where a block does.
  void start(const PartedRow& row, int64_t vocab, bool whole_blocks);
  const RowNeeds& needs() const { return needs_; }

  // A message about a part of `tokens` tokens; 0: there is nothing to tell.
  int64_t list_bytes(int64_t tokens) const;
  int64_t sum_bytes(int64_t tokens) const;
  static size_t scratch_bytes(int64_t tokens);
  // Fill them. Sums are of weights that depend on what the lists have told.
  void list(const LogitPart& part, Isa isa, std::byte* scratch, std::byte* message) const;
  void sum(const LogitPart& part, Isa isa, std::byte* scratch, std::byte* message) const;

  // The messages about all parts, in their order.
  struct Told {
    const std::byte* message;
    int64_t tokens;
  };
  void take_lists(std::span<const Told> parts);
  void take_sums(std::span<const Told> parts);

  // After that: the row is done, or is to be drawn, or has turned out to be whole.
  void conclude(Isa isa);
  // The block that has the token to be drawn; -1: there is none.
  int64_t block() const { return block_; }
  // By who has the block; and by everybody.
  Candidate draw(const LogitPart& part, Isa isa) const;
  void take_drawn(const Candidate& drawn) { finish(drawn); }

  SampledToken& result() { return result_; }

 private:
  void weigh(std::span<const float> logits, Isa isa, float* weights) const;
  bool draw_from_list(double u, double total);
  void finish(const Candidate& chosen);

  PartedRow row_;
  int64_t vocab_ = 0;
  RowNeeds needs_;
  bool finite_ = false;
  Candidate best_;                         // the first in the order of the logits sampled from
  float raw_largest_ = 0;                  // of all
  std::vector<Candidate> list_, likely_;   // the first of all parts together
  std::vector<float> logits_, weights_;    // of list_
  std::vector<double> nodes_, raw_nodes_;  // of trees over blocks, the sums in front
  double log_sum_ = 0, target_ = 0;
  int64_t block_ = -1;
  SampledToken result_;
};

}  // namespace cohort
