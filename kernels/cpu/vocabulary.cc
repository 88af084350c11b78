// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/vocabulary.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace cohort::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float largest_of(const float* maxima, int64_t lanes) {
  float largest[kVocabLanes];
  std::fill_n(largest, kVocabLanes, -kInfinity);
  for (int64_t at = 0; at < lanes; at += kVocabLanes)
    for (int lane = 0; lane < kVocabLanes; lane++)
      largest[lane] = maxima[at + lane] > largest[lane] ? maxima[at + lane] : largest[lane];
  return *std::max_element(largest, largest + kVocabLanes);
}

}  // namespace

Largest find_largest(std::span<const float> logits, const RowKernels& kernels, float* maxima) {
  const bool nan = kernels.lane_maxima(maxima, logits.data(), int64_t(logits.size()));
  return find_largest(logits, maxima, nan);
}

Largest find_largest(std::span<const float> logits, const float* maxima, bool nan) {
  const int64_t lanes = token_lanes(int64_t(logits.size()));
  Largest best{largest_of(maxima, lanes), 0, false};
  best.ok = !nan && best.value > -kInfinity && best.value < kInfinity;
  if (!best.ok) return best;
  const auto first = std::find(maxima, maxima + lanes, best.value) - maxima;
  const auto block = logits.begin() + first / kVocabLanes * kTokenBlock;
  best.token = int32_t(std::find(block, logits.end(), best.value) - logits.begin());
  return best;
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

int32_t WeightTree::find(double target) const {
  const BlockTree::Place place = tree_.find(target);
  const auto begin = size_t(place.block * kTokenBlock);
  const size_t n = std::min<size_t>(kTokenBlock, weights_.size() - begin);
  return int32_t(int64_t(begin) + find_in_block(weights_.subspan(begin, n), place.target));
}

uint64_t order_key(float logit, int32_t token) {
  const uint32_t bits = std::bit_cast<uint32_t>(logit + 0.0f);  // -0 is equal to 0
  const uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return uint64_t(~ascending) << 32 | uint32_t(token);
}

namespace {

float logit_of(uint64_t key) {
  const auto ascending = uint32_t(~key >> 32);
  return std::bit_cast<float>(ascending & 0x80000000u ? ascending & 0x7fffffffu : ~ascending);
}

// A logit that `count` tokens reach, and usually few more: the least of as many bins, by distance
// from the largest logit, as hold so many. Bins are a quarter wide; the last takes all the rest.
float bound_by_distance(std::span<const float> logits, float top, int64_t count) {
  constexpr int kBins = 256;
  struct Bin {
    int64_t tokens = 0;
    float least = kInfinity;
  } bins[kBins];
  for (const float x : logits) {
    const float below = top - x;
    Bin& bin = bins[below < float(kBins - 1) / 4 ? int(below * 4) : kBins - 1];
    bin.tokens++;
    bin.least = std::min(bin.least, x);
  }
  float bound = top;
  int64_t seen = 0;
  for (const Bin& bin : bins) {
    bound = std::min(bound, bin.least);
    if ((seen += bin.tokens) >= count) break;
  }
  return bound;
}

// The same where few tokens are wanted: that many groups of tokens have one that reaches it. Groups
// are blocks, or their lanes.
float lower_bound(std::span<const float> logits, const float* maxima, int64_t count,
                  uint64_t* keys) {
  const int64_t lanes = token_lanes(int64_t(logits.size())), blocks = lanes / kVocabLanes;
  const auto reached = [&](int64_t groups) {
    std::nth_element(keys, keys + count - 1, keys + groups);
    return logit_of(keys[count - 1]);
  };
  if (count <= blocks * 7 / 8) {
    for (int64_t b = 0; b < blocks; b++)
      keys[b] = order_key(largest_of(maxima + b * kVocabLanes, kVocabLanes), 0);
    return reached(blocks);
  }
  if (count > lanes * 7 / 8) return bound_by_distance(logits, largest_of(maxima, lanes), count);
  for (int64_t l = 0; l < lanes; l++) keys[l] = order_key(maxima[l], 0);
  return reached(lanes);
}

}  // namespace

void select_top(std::span<const float> logits, const float* maxima, int64_t count, uint64_t* keys) {
  const auto n = int64_t(logits.size());
  count = std::min(count, n);
  if (count <= 0) return;
  const float bound = lower_bound(logits, maxima, count, keys);
  int64_t kept = 0;
  for (int64_t lane = 0; lane < token_lanes(n); lane++) {
    if (!(maxima[lane] >= bound)) continue;
    const int64_t block = lane / kVocabLanes * kTokenBlock, end = std::min(block + kTokenBlock, n);
    for (int64_t i = block + lane % kVocabLanes; i < end; i += kVocabLanes)
      if (logits[size_t(i)] >= bound) keys[kept++] = order_key(logits[size_t(i)], int32_t(i));
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
