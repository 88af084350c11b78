// SPDX-License-Identifier: Apache-2.0
// What sampling needs of a row of logits or weights [vocab] (docs/arithmetic.md section 6).
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace cohort::cpu {

// The largest logit and the lowest token that has it. ok: nothing is NaN or +infinity, and
// something is above -infinity.
struct Largest {
  float value;
  int32_t token;
  bool ok;
};
Largest find_largest(std::span<const float> logits);

// Sums of weights over blocks of 256 tokens, added pairwise, level by level, an odd one out moving
// up unchanged. Nodes live in memory of the caller.
class WeightTree {
 public:
  static size_t nodes(size_t vocab);  // doubles that it needs
  WeightTree(std::span<const float> weights, double* memory);

  double total() const;
  // The token at which the running sum, in order of tokens, passes `target` < total().
  int32_t find(double target) const;

 private:
  std::span<const float> weights_;
  double* memory_;
  int64_t blocks_;
};

// Tokens ordered by logit, highest first, equal ones by number: keys compare ascending.
uint64_t order_key(float logit, int32_t token);
inline int32_t token_of(uint64_t key) { return int32_t(uint32_t(key)); }

// Fills keys [vocab] such that the first `count` are those of the most likely tokens, in order.
// top: the largest logit. No logit is NaN.
void select_top(std::span<const float> logits, float top, int64_t count, uint64_t* keys);

// Natural logarithm of x > 0 by a fixed series: libraries differ in their last bit.
double fixed_log(double x);

}  // namespace cohort::cpu
