// SPDX-License-Identifier: Apache-2.0
// What sampling needs of a row of logits or weights [vocab] (docs/arithmetic.md section 6).
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/rows.h"

namespace cohort::cpu {

// The largest logit and the lowest token that has it. ok: nothing is NaN or +infinity, and
// something is above -infinity.
struct Largest {
  float value;
  int32_t token;
  bool ok;
};

// Rows are looked at in blocks of so many tokens, each in 16 lanes.
inline constexpr int64_t kTokenBlock = kVocabBlock;
inline int64_t token_blocks(int64_t tokens) { return (tokens + kTokenBlock - 1) / kTokenBlock; }
inline int64_t token_lanes(int64_t tokens) { return token_blocks(tokens) * kVocabLanes; }

// maxima [token_lanes]: as LaneMaxima leaves them, for select_top(), too.
Largest find_largest(std::span<const float> logits, const RowKernels& kernels, float* maxima);
// Where they are there. nan: there is one among the logits.
Largest find_largest(std::span<const float> logits, const float* maxima, bool nan);

// The index at which the running sum over a block's weights passes `target`; where rounding leaves
// the target at the block's end, its last weight that is not zero.
int64_t find_in_block(std::span<const float> weights, double target);

// Sums of blocks, added pairwise, level by level, an odd one out moving up unchanged. Nodes live in
// memory of the caller.
class BlockTree {
 public:
  static size_t nodes(int64_t blocks);  // doubles that it needs
  // The first `blocks` of `memory` are the blocks' sums.
  BlockTree(double* memory, int64_t blocks);

  double total() const { return memory_[nodes(blocks_) - 1]; }
  // The block in which the running sum passes `target` < total(), and the target within it.
  struct Place {
    int64_t block;
    double target;
  };
  Place find(double target) const;

 private:
  double* memory_;
  int64_t blocks_;
};

// The same over the weights of all tokens.
class WeightTree {
 public:
  static size_t nodes(size_t vocab) { return BlockTree::nodes(token_blocks(int64_t(vocab))); }
  // The first of `memory` are the sums of blocks, as BlockSums leaves them.
  WeightTree(std::span<const float> weights, double* memory)
      : weights_(weights), tree_(memory, token_blocks(int64_t(weights.size()))) {}

  double total() const { return tree_.total(); }
  // The token at which the running sum, in order of tokens, passes `target` < total().
  int32_t find(double target) const;

 private:
  std::span<const float> weights_;
  BlockTree tree_;
};

// Tokens ordered by logit, highest first, equal ones by number: keys compare ascending.
uint64_t order_key(float logit, int32_t token);
inline int32_t token_of(uint64_t key) { return int32_t(uint32_t(key)); }

// Fills keys [at least vocab and 16] such that the first `count` are those of the most likely
// tokens, in order. maxima: of these logits. No logit is NaN.
void select_top(std::span<const float> logits, const float* maxima, int64_t count, uint64_t* keys);
inline size_t keys_for(size_t vocab) { return vocab > 16 ? vocab : 16; }

// Natural logarithm of x > 0 by a fixed series: libraries differ in their last bit.
double fixed_log(double x);

}  // namespace cohort::cpu
