// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/vocabulary.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/cpu/strided_sum.h"

namespace cohort::cpu {
namespace {

constexpr int kBlock = int(kTokenBlock), kLanes = 16;

struct BlockSummary {
  float largest;
  uint32_t magnitude;  // bits of the largest magnitude; above infinity's: NaN
};

BlockSummary summarise(const float* x, int64_t n) {
  float largest[kLanes];
  uint32_t magnitude[kLanes] = {};
  std::fill_n(largest, kLanes, -std::numeric_limits<float>::infinity());
  const auto take = [&](int lane, float value) {
    largest[lane] = value > largest[lane] ? value : largest[lane];
    magnitude[lane] = std::max(magnitude[lane], std::bit_cast<uint32_t>(value) & 0x7fffffffu);
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int lane = 0; lane < kLanes; lane++) take(lane, x[i + lane]);
  for (int lane = 0; i < n; i++, lane++) take(lane, x[i]);
  return {*std::max_element(largest, largest + kLanes),
          *std::max_element(magnitude, magnitude + kLanes)};
}

float block_sum(const float* x, int64_t n) {
  return strided_sum(n, [x](int64_t i) { return x[i]; });
}

}  // namespace

Largest find_largest(std::span<const float> logits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Largest best{-kInfinity, 0, false};
  uint32_t magnitude = 0;
  int64_t best_block = 0;
  const auto n = int64_t(logits.size());
  for (int64_t at = 0; at < n; at += kBlock) {
    const BlockSummary block = summarise(logits.data() + at, std::min<int64_t>(kBlock, n - at));
    magnitude = std::max(magnitude, block.magnitude);
    if (block.largest > best.value) {
      best.value = block.largest;
      best_block = at;
    }
  }
  const bool nan = magnitude > std::bit_cast<uint32_t>(kInfinity);
  best.ok = !nan && best.value > -kInfinity && best.value < kInfinity;
  if (!best.ok) return best;
  const auto begin = logits.begin() + best_block;
  best.token = int32_t(std::find(begin, logits.end(), best.value) - logits.begin());
  return best;
}

void sum_blocks(std::span<const float> weights, double* sums) {
  const auto n = int64_t(weights.size());
  for (int64_t at = 0; at < n; at += kBlock)
    *sums++ = block_sum(weights.data() + at, std::min<int64_t>(kBlock, n - at));
}

int64_t find_in_block(std::span<const float> weights, double target) {
  int64_t last = 0;
  for (size_t i = 0; i < weights.size(); i++) {
    if (weights[i] <= 0) continue;
    last = int64_t(i);
    if (target < weights[i]) break;
    target -= weights[i];
  }
  return last;
}

size_t BlockTree::nodes(int64_t blocks) {
  size_t total = 0;
  for (int64_t n = blocks; n > 0; n = n > 1 ? (n + 1) / 2 : 0) total += size_t(n);
  return total;
}

BlockTree::BlockTree(double* memory, int64_t blocks) : memory_(memory), blocks_(blocks) {
  for (int64_t count = blocks; count > 1; count = (count + 1) / 2) {
    double* up = memory + count;
    for (int64_t i = 0; i < count; i += 2)
      up[i / 2] = i + 1 < count ? memory[i] + memory[i + 1] : memory[i];
    memory = up;
  }
}

BlockTree::Place BlockTree::find(double target) const {
  int64_t counts[64];
  int levels = 0;
  for (int64_t n = blocks_;; n = (n + 1) / 2) {
    counts[levels++] = n;
    if (n == 1) break;
  }
  const double* level = memory_ + nodes(blocks_) - 1;
  int64_t node = 0;
  for (int l = levels - 2; l >= 0; l--) {
    level -= counts[l];
    node *= 2;
    const bool right = node + 1 < counts[l] && target >= level[node] && level[node + 1] > 0;
    if (right) target -= level[node++];
  }
  return {node, target};
}

namespace {

double* with_block_sums(std::span<const float> weights, double* memory) {
  sum_blocks(weights, memory);
  return memory;
}

}  // namespace

WeightTree::WeightTree(std::span<const float> weights, double* memory)
    : weights_(weights),
      tree_(with_block_sums(weights, memory), token_blocks(int64_t(weights.size()))) {}

int32_t WeightTree::find(double target) const {
  const BlockTree::Place place = tree_.find(target);
  const auto begin = size_t(place.block * kBlock);
  const size_t n = std::min<size_t>(kBlock, weights_.size() - begin);
  return int32_t(int64_t(begin) + find_in_block(weights_.subspan(begin, n), place.target));
}

uint64_t order_key(float logit, int32_t token) {
  const uint32_t bits = std::bit_cast<uint32_t>(logit + 0.0f);  // -0 is equal to 0
  const uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return uint64_t(~ascending) << 32 | uint32_t(token);
}

namespace {

// Bins a quarter wide, by distance from the largest logit; the last takes all the rest.
constexpr int kBins = 256;
int bin_of(float logit, float top) {
  const float below = top - logit;
  return below < float(kBins - 1) / 4 ? int(below * 4) : kBins - 1;
}

}  // namespace

void select_top(std::span<const float> logits, float top, int64_t count, uint64_t* keys) {
  const auto n = int64_t(logits.size());
  count = std::min(count, n);
  // Only tokens of the first bins that hold `count` can be among the first: few keys to sort.
  int32_t bins[kBins] = {};
  for (float x : logits) bins[bin_of(x, top)]++;
  int last = 0;
  for (int64_t seen = bins[0]; seen < count; seen += bins[last]) last++;
  int64_t kept = 0;
  for (int64_t i = 0; i < n; i++) {
    keys[kept] = order_key(logits[size_t(i)], int32_t(i));
    kept += bin_of(logits[size_t(i)], top) <= last;
  }
  if (count < kept) std::nth_element(keys, keys + count, keys + kept);
  std::sort(keys, keys + count);
}

double fixed_log(double x) {
  int exponent;
  double m = std::frexp(x, &exponent);
  if (m < 0x1.6a09e667f3bcdp-1) {  // to [1/sqrt 2, sqrt 2)
    m *= 2;
    exponent--;
  }
  // log m = 2 artanh s = 2 (s + s^3/3 + s^5/5 + ...) with |s| < 0.172: 12 terms reach 2^-64.
  const double s = (m - 1) / (m + 1), square = s * s;
  double sum = 0;
  for (int k = 23; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
  return 2 * s * sum + double(exponent) * 0x1.62e42fefa39efp-1;
}

}  // namespace cohort::cpu
