// SPDX-License-Identifier: Apache-2.0
// The definition of attention: one row at a time, plain scalar code. Vector kernels must match it
// bit for bit.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/half.h"
#include "kernels/cpu/attention_job.h"
#include "kernels/cpu/exp2.h"
#include "kernels/cpu/flushed.h"
#include "kernels/cpu/round_bf16.h"

namespace cohort {
namespace {

float element(DType type, const std::byte* plane, int i) {
  if (type == DType::f32) return reinterpret_cast<const float*>(plane)[i];
  if (type == DType::i8) return float(reinterpret_cast<const int8_t*>(plane)[i]);
  const uint16_t bits = reinterpret_cast<const uint16_t*>(plane)[i];
  return type == DType::bf16 ? bf16_to_float(bits) : half_to_float(bits);
}

// x times a scale of the chunk, where there are such: 16 of keys, then 16 of values.
float scaled(const AttentionShape& s, const std::byte* chunk, int i, float x) {
  return s.dtype == DType::i8 ? x * reinterpret_cast<const float*>(chunk + 2 * s.plane)[i] : x;
}

// NaN is passed over if it comes first.
float larger(float a, float b) { return a > b ? a : b; }

// Partial results of a row over a subtree of splits: sums [dim], then maximum, then weight. out may
// be either of them.
void merge(int dim, const float* earlier, const float* later, float* out) {
  const float max = larger(earlier[dim], later[dim]);
  const float a = exp2_not_positive(earlier[dim] - max), b = exp2_not_positive(later[dim] - max);
  for (int d = 0; d < dim; d++) out[d] = std::fma(later[d], b, earlier[d] * a);
  out[dim + 1] = std::fma(later[dim + 1], b, earlier[dim + 1] * a);
  out[dim] = max;
}

// Merges pairwise, level by level, an odd one out moving up unchanged: a binary counter over
// levels [level][stride]. A level whose subtree has been merged upwards is free to carry the sum.
class Counter {
 public:
  Counter(float* levels, int dim, int stride) : levels_(levels), dim_(dim), stride_(stride) {}

  // of: levels of the subtree that comes.
  void push(const float* partial, int of = 0) {
    float* level = levels_ + of * stride_;
    for (unsigned u = units_ >> of; u & 1; u >>= 1, level += stride_) {
      merge(dim_, level, partial, level);
      partial = level;
    }
    std::copy_n(partial, dim_ + 2, level);
    units_ += 1u << of;
  }
  const float* finish() {
    float *sum = nullptr, *level = levels_;
    for (unsigned u = units_; u > 0; u >>= 1, level += stride_) {
      if ((u & 1) == 0) continue;
      if (sum != nullptr) merge(dim_, level, sum, level);
      sum = level;
    }
    return sum;
  }

 private:
  float* levels_;
  int dim_, stride_;
  unsigned units_ = 0;
};

void finish_row(int dim, const float* partial, float* out) {
  const float inverse = 1 / partial[dim + 1];
  for (int d = 0; d < dim; d++) {
    const float x = partial[d] * inverse;
    out[d] = std::isnan(x) ? std::numeric_limits<float>::quiet_NaN() : x;  // one NaN for all
  }
}

// The chunk of a split's key.
const std::byte* chunk_of(const AttentionWork& work, int split, int key) {
  const int32_t block = work.queries->blocks[split * kSplitBlocks + key / kBlockLanes];
  return work.pool + block * work.shape->block + work.item->heads.kv_head * work.shape->chunk;
}

// ---- one chain a sum ----------------------------------------------------------------------------
float score_of(const AttentionShape& s, const float* q, const std::byte* chunk, int lane) {
  float acc = 0;
  for (int d = 0; d < s.dim; d++)
    acc = std::fma(q[d], element(s.dtype, chunk, d * kBlockLanes + lane), acc);
  return scaled(s, chunk, lane, acc);
}

// p [keys] times the values, to out [dim].
void add_values(const AttentionWork& work, int split, int keys, const float* p, float* out) {
  const AttentionShape& s = *work.shape;
  std::fill_n(out, s.dim, 0.0f);
  for (int j = 0; j < keys; j++) {
    const std::byte* chunk = chunk_of(work, split, j);
    const int lane = j % kBlockLanes;
    const float weight = scaled(s, chunk, kBlockLanes + lane, p[j]);
    for (int d = 0; d < s.dim; d++)
      out[d] = std::fma(weight, element(s.dtype, chunk + s.plane, lane * s.dim + d), out[d]);
  }
}

// ---- bf16 arithmetic: two chains for each 32 dimensions or keys ---------------------------------
constexpr int kChainLength = 32;

float bf16_score_of(const AttentionShape& s, const float* q, const std::byte* chunk, int lane) {
  float acc = 0;
  for (int d0 = 0; d0 < s.dim; d0 += kChainLength) {
    float chains[2] = {};
    for (int d = d0; d < std::min(d0 + kChainLength, s.dim); d++) {
      const float k = flushed(element(s.dtype, chunk, d * kBlockLanes + lane));
      chains[d % 2] = flushed_fma(q[d], k, chains[d % 2]);
    }
    acc = flushed_sum(acc, flushed_sum(chains[0], chains[1]));
  }
  return acc;
}

void bf16_add_values(const AttentionWork& work, int split, int keys, const float* p, float* out) {
  const AttentionShape& s = *work.shape;
  float* chains[2] = {work.scratch->values, work.scratch->values + s.dim};
  std::fill_n(out, s.dim, 0.0f);
  for (int j0 = 0; j0 < keys; j0 += kChainLength) {
    std::fill_n(chains[0], 2 * s.dim, 0.0f);
    for (int j = j0; j < std::min(j0 + kChainLength, keys); j++) {
      const std::byte* values = chunk_of(work, split, j) + s.plane;
      float* chain = chains[j % 2];
      for (int d = 0; d < s.dim; d++) {
        const float v = flushed(element(s.dtype, values, j % kBlockLanes * s.dim + d));
        chain[d] = flushed_fma(p[j], v, chain[d]);
      }
    }
    for (int d = 0; d < s.dim; d++)
      out[d] = flushed_sum(out[d], flushed_sum(chains[0][d], chains[1][d]));
  }
}

// One row over one split of which it sees the first `keys` keys; q is scaled already.
void attend_split(const AttentionWork& work, const float* q, int split, int keys, float* out) {
  const AttentionShape& s = *work.shape;
  float p[kSplit], lanes[kBlockLanes] = {}, max = kLowestScore;  // p: scores, then weights
  for (int j = 0; j < keys; j++) {
    p[j] = (s.bf16 ? bf16_score_of : score_of)(s, q, chunk_of(work, split, j), j % kBlockLanes);
    max = larger(p[j], max);
  }
  for (int j = 0; j < keys; j++) {
    p[j] = exp2_not_positive(p[j] - max);
    if (s.bf16) p[j] = rounded_to_bf16(p[j]);
    lanes[j % kBlockLanes] += p[j];
  }
  (s.bf16 ? bf16_add_values : add_values)(work, split, keys, p, out);
  for (int half = kBlockLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
  out[s.dim] = max;
  out[s.dim + 1] = lanes[0];
}

}  // namespace

void attend_portable(const AttentionWork& work) {
  const AttentionShape& s = *work.shape;
  const AttentionItem& item = *work.item;
  for (int row = 0; row < item_rows(work); row++) {
    const float* q = work.queries->q + row_offset(work, row);
    for (int d = 0; d < s.dim; d++) work.scratch->query[d] = q[d] * s.query_scale;
    if (s.bf16)
      for (int d = 0; d < s.dim; d++)
        work.scratch->query[d] = rounded_to_bf16(work.scratch->query[d]);
    Counter counter(work.scratch->levels, s.dim, s.stride);
    const int position = row_position(work, row);
    bool any = false;
    for (int split = item.split0; split < item.split1; split++) {
      const int keys = visible_keys(position, split);
      if (keys == 0) break;
      attend_split(work, work.scratch->query, split, keys, work.scratch->fresh);
      counter.push(work.scratch->fresh);
      any = true;
    }
    if (!any) continue;
    const float* sum = counter.finish();
    if (item.merge < 0)
      finish_row(s.dim, sum, work.queries->out + row_offset(work, row));
    else
      std::copy_n(sum, s.dim + 2, row_partial(work, row));
  }
}

void merge_portable(const AttentionWork& work, const AttentionMerge& m) {
  const AttentionShape& s = *work.shape;
  for (int row = 0; row < m.rows; row++) {
    const int position = row_position(work, row);
    Counter counter(work.scratch->levels, s.dim, s.stride);
    for (int unit = 0, p = 0; visible_keys(position, unit * m.unit_splits) > 0; p++) {
      const int level = piece_level(m, unit);
      counter.push(work.partials + (int64_t(p) * m.rows + row) * s.stride, level);
      unit += 1 << level;
    }
    finish_row(s.dim, counter.finish(), work.queries->out + row_offset(work, row));
  }
}

}  // namespace cohort
