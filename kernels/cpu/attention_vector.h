// SPDX-License-Identifier: Apache-2.0
// The fast attention kernels, written once over a vector type V. Lanes are tokens for scores and
// dimensions for values, so the vector width cannot change a bit. Included by one unit per
// instruction set, hence the unnamed namespace and no use of the standard library.
#pragma once
#include "kernels/cpu/attention_job.h"
#include "kernels/cpu/exp2.h"

#define COHORT_INLINE __attribute__((always_inline)) inline

namespace cohort {
namespace {

constexpr int kScoreStride = kSplit + 16;  // of a row of scores

COHORT_INLINE int least(int a, int b) { return a < b ? a : b; }

// ---- elements of the KV memory as f32 lanes ----------------------------------------------------
template <class V>
struct F32 {
  static constexpr int kBytes = 4;
  static COHORT_INLINE typename V::F load(const std::byte* p) {
    return V::load(reinterpret_cast<const float*>(p));
  }
};
template <class V>
struct Bf16 {
  static constexpr int kBytes = 2;
  static COHORT_INLINE typename V::F load(const std::byte* p) { return V::bf16(p); }
};
template <class V>
struct F16 {
  static constexpr int kBytes = 2;
  static COHORT_INLINE typename V::F load(const std::byte* p) { return V::f16(p); }
};

// Keys and values of one split, and of the one after it, to ask memory for meanwhile. A block past
// the last one repeats it: its lanes are computed and never looked at.
struct Split {
  const std::byte *k[kSplitBlocks + 4], *v[kSplitBlocks];
  const std::byte *next_k[kSplitBlocks + 4], *next_v[kSplitBlocks];
};

// ---- scores: R rows x B blocks of tokens in registers, one chain over dim per lane --------------
template <class V, class L, int R, int B>
COHORT_INLINE void score_blocks(const std::byte* const* k, const std::byte* const* ahead,
                                const float* q, int dim, float* out) {
  constexpr int kParts = kBlockLanes / V::kLanes, kWidth = B * kParts;
  constexpr int kRowBytes = kBlockLanes * L::kBytes;
  typename V::F acc[R][kWidth];
#pragma GCC unroll 16
  for (auto& row : acc)
#pragma GCC unroll 16
    for (auto& a : row) a = V::set1(0);
  const std::byte* at[B];
#pragma GCC unroll 4
  for (int b = 0; b < B; b++) at[b] = k[b];
  for (int d = 0; d < dim; d++) {
    typename V::F x[kWidth];
#pragma GCC unroll 8
    for (int i = 0; i < kWidth; i++)
      x[i] = L::load(at[i / kParts] + d * kRowBytes + i % kParts * V::kLanes * L::kBytes);
    if (ahead && d * kRowBytes % 64 == 0)
#pragma GCC unroll 4
      for (int b = 0; b < B; b++) __builtin_prefetch(ahead[b] + d * kRowBytes, 0, 2);
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
      const auto y = V::set1(q[d * R + r]);
#pragma GCC unroll 8
      for (int i = 0; i < kWidth; i++) acc[r][i] = V::fma(y, x[i], acc[r][i]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int i = 0; i < kWidth; i++) V::store(out + r * kScoreStride + i * V::kLanes, acc[r][i]);
}

template <class V, class L, int R>
void scores(const Split& split, int blocks, const float* q, int dim, bool prefetch, float* out) {
  constexpr int B = V::template kScoreBlocks<R>;
  for (int b = 0; b < blocks; b += B)
    score_blocks<V, L, R, B>(split.k + b, prefetch ? split.next_k + b : nullptr, q, dim,
                             out + b * kBlockLanes);
}

// ---- weights: scores of one row become 2^(score - maximum), in place ----------------------------
// Lanes past the last visible key never reach the maximum and weigh exactly 0, even if their memory
// holds NaN.
template <class V>
void weigh(float* s, int keys, float* max_out, float* weight_out) {
  constexpr int kParts = kBlockLanes / V::kLanes;
  typename V::F max[kParts], sum[kParts];
  for (int i = 0; i < kParts; i++) {
    max[i] = V::set1(kLowestScore);
    sum[i] = V::set1(0);
  }
  for (int j = 0; j < keys; j += kBlockLanes)
    for (int i = 0; i < kParts; i++) {
      const auto x = V::load(s + j + i * V::kLanes);
      max[i] = V::max(V::first(x, keys - j - i * V::kLanes, V::set1(kLowestScore)), max[i]);
    }
  const float m = V::reduce_max(max);
  for (int j = 0; j < keys; j += kBlockLanes)
    for (int i = 0; i < kParts; i++) {
      float* at = s + j + i * V::kLanes;
      const auto p =
          V::first(V::exp2(V::sub(V::load(at), V::set1(m))), keys - j - i * V::kLanes, V::set1(0));
      sum[i] = V::add(sum[i], p);
      V::store(at, p);
    }
  *max_out = m;
  *weight_out = V::reduce_add(sum);
}

// ---- values: R rows x W vectors of dimensions in registers, one chain over tokens per lane ------
template <class V, class L, int R, int W>
COHORT_INLINE void value_columns(const Split& split, int t0, int t1, const float* p, int dim,
                                 int d0, bool prefetch, float* acc_out, int stride) {
  typename V::F acc[R][W];
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int i = 0; i < W; i++) acc[r][i] = V::load(acc_out + r * stride + d0 + i * V::kLanes);
  for (int t = t0; t < t1;) {
    const int end = least(t1, (t / kBlockLanes + 1) * kBlockLanes);
    const std::byte* row =
        split.v[t / kBlockLanes] + int64_t(t % kBlockLanes * dim + d0) * L::kBytes;
    const std::byte* ahead = split.next_v[t / kBlockLanes] + int64_t(d0) * L::kBytes;
    for (; t < end; t++, row += dim * L::kBytes) {
      typename V::F x[W];
#pragma GCC unroll 8
      for (int i = 0; i < W; i++) x[i] = L::load(row + i * V::kLanes * L::kBytes);
      if (prefetch)
#pragma GCC unroll 4
        for (int i = 0; i < W * V::kLanes * L::kBytes; i += 64)
          __builtin_prefetch(ahead + t % kBlockLanes * dim * L::kBytes + i, 0, 2);
#pragma GCC unroll 8
      for (int r = 0; r < R; r++) {
        const auto y = V::set1(p[r * kScoreStride + t]);
#pragma GCC unroll 8
        for (int i = 0; i < W; i++) acc[r][i] = V::fma(y, x[i], acc[r][i]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int i = 0; i < W; i++) V::store(acc_out + r * stride + d0 + i * V::kLanes, acc[r][i]);
}

// Dimensions [d, d + W vectors): all rows together up to the fewest keys that any of them sees,
// then each on its own. A key that a row must not see never touches it, so neither its sign of zero
// nor a NaN in memory can depend on the company it was computed in.
template <class V, class L, int R, int W>
COHORT_INLINE void values_at(const Split& split, const int* keys, int common, const float* p,
                             int dim, int d, bool prefetch, float* acc, int stride) {
  value_columns<V, L, R, W>(split, 0, common, p, dim, d, prefetch, acc, stride);
  for (int r = 0; r < R; r++)
    if (keys[r] > common)
      value_columns<V, L, 1, W>(split, common, keys[r], p + r * kScoreStride, dim, d, false,
                                acc + r * stride, stride);
}

template <class V, class L, int R>
void values(const Split& split, const int* keys, const float* p, int dim, bool prefetch, float* acc,
            int stride) {
  constexpr int W = V::kValueVectors;
  int common = keys[0], d = 0;
  for (int r = 1; r < R; r++) common = least(common, keys[r]);
  for (; d + W * V::kLanes <= dim; d += W * V::kLanes)
    values_at<V, L, R, W>(split, keys, common, p, dim, d, prefetch, acc, stride);
  for (; d < dim; d += V::kLanes)
    values_at<V, L, R, 1>(split, keys, common, p, dim, d, prefetch, acc, stride);
}

template <class V, class L>
using Scores = void(const Split&, int, const float*, int, bool, float*);
template <class V, class L>
using Values = void(const Split&, const int*, const float*, int, bool, float*, int);
// By rows of a tile; no tile has 7, nor 9 to 11.
template <class V, class L>
Scores<V, L>* const kScores[] = {nullptr,         scores<V, L, 1>, scores<V, L, 2>, scores<V, L, 3>,
                                 scores<V, L, 4>, scores<V, L, 5>, scores<V, L, 6>};
template <class V, class L>
Values<V, L>* const kValues[] = {nullptr, values<V, L, 1>, values<V, L, 2>, values<V, L, 3>};

// How many of the remaining rows the next tile takes.
template <class V>
int tile_rows(int rows) {
  if (rows <= V::kTallest) return rows;
  return rows < 2 * V::kTallest ? (rows + 1) / 2 : V::kTallest;
}

// ---- the tree over splits
// -------------------------------------------------------------------------
template <class V>
void merge(const float* a, const float* b, float* out, int dim) {  // a: the earlier keys
  const float m = a[dim] > b[dim] ? a[dim] : b[dim];
  const auto wa = V::exp2(V::set1(a[dim] - m)), wb = V::exp2(V::set1(b[dim] - m));
  for (int d = 0; d < dim; d += V::kLanes)
    V::store(out + d, V::fma(V::load(b + d), wb, V::mul(V::load(a + d), wa)));
  out[dim + 1] = V::lane0(V::fma(V::set1(b[dim + 1]), wb, V::mul(V::set1(a[dim + 1]), wa)));
  out[dim] = m;
}

// Partial results of one row, one per complete subtree (a binary counter). Rows of an item are
// interleaved, so that a step to the next level is rows * stride.
template <class V>
struct RowTree {
  float* first;
  int64_t step;
  int dim;

  // Where the row's next partial result is best written: for an even unit that is its place.
  COHORT_INLINE float* place(unsigned unit, float* fresh) const { return unit & 1 ? fresh : first; }
  COHORT_INLINE void push(unsigned unit, float* x) const {
    float* level = first;
    for (; unit & 1; unit >>= 1, level += step)
      merge<V>(level, x, unit & 2 ? x : level + step, dim);
  }
  COHORT_INLINE const float* finish(unsigned units) const {
    float *sum = nullptr, *level = first;
    for (; units; units >>= 1, level += step) {
      if (!(units & 1)) continue;
      if (sum) merge<V>(level, sum, level, dim);
      sum = level;
    }
    return sum;
  }
};

template <class V>
void finish_row(const float* sum, float* out, int dim) {
  const auto inverse = V::set1(1 / sum[dim + 1]);
  for (int d = 0; d < dim; d += V::kLanes)
    V::store(out + d, V::one_nan(V::mul(V::load(sum + d), inverse)));
}

COHORT_INLINE void copy(const float* from, int n, float* to) {
  for (int i = 0; i < n; i++) to[i] = from[i];
}

// ---- one item
// -------------------------------------------------------------------------------------
COHORT_INLINE int blocks_of(const AttentionQueries& e, const AttentionItem& item, int split) {
  return (visible_keys(e.start + item.q1 - 1, split) + kBlockLanes - 1) / kBlockLanes;
}

COHORT_INLINE const std::byte* chunk(const AttentionWork& w, const AttentionQueries& e,
                                     const AttentionItem& item, int split, int b) {
  const int last = blocks_of(e, item, split) - 1;
  return w.pool + e.blocks[split * kSplitBlocks + least(b, last)] * w.shape->block +
         item.kv_head * w.shape->chunk;
}

void locate(const AttentionWork& w, int split, Split& s) {
  for (int b = 0; b < kSplitBlocks + 4; b++) {
    s.k[b] = chunk(w, *w.queries, *w.item, split, b);
    s.next_k[b] = split + 1 < w.item->split1 ? chunk(w, *w.queries, *w.item, split + 1, b)
                  : w.next                   ? chunk(w, *w.next_queries, *w.next, w.next->split0, b)
                                             : s.k[b];
    if (b >= kSplitBlocks) continue;
    s.v[b] = s.k[b] + w.shape->plane;
    s.next_v[b] = s.next_k[b] + w.shape->plane;
  }
}

// Prefill: many tiles use the same keys, so they are widened to f32 once.
template <class V, class L>
void widen(const AttentionWork& w, int blocks, Split& s) {
  const int n = w.shape->dim * kBlockLanes;
  for (int b = 0; b < blocks; b++)
    for (int i = 0; i < n; i += V::kLanes) {
      V::store(w.scratch->keys + b * n + i, L::load(s.k[b] + i * L::kBytes));
      V::store(w.scratch->values + b * n + i, L::load(s.v[b] + i * L::kBytes));
    }
  for (int b = 0; b < kSplitBlocks + 4; b++) {
    const int from = least(b, blocks - 1) * n;
    s.k[b] = reinterpret_cast<const std::byte*>(w.scratch->keys + from);
    if (b < kSplitBlocks) s.v[b] = reinterpret_cast<const std::byte*>(w.scratch->values + from);
  }
}

template <class V, class L>
void tile(const AttentionShape& g, const Split& s, const float* q, int rows, const int* keys,
          bool prefetch, float* score, float* to) {
  const int blocks = (keys[rows - 1] + kBlockLanes - 1) / kBlockLanes;  // the last row sees most
  kScores<V, L>[rows](s, blocks, q, g.dim, prefetch, score);
  for (int r = 0; r < rows; r++) {
    float* sums = to + r * g.stride;
    weigh<V>(score + r * kScoreStride, keys[r], sums + g.dim, sums + g.dim + 1);
    for (int d = 0; d < g.dim; d++) sums[d] = 0;
  }
  for (int r = 0; r < rows;) {
    const int n = least(rows - r, V::kValueRows);
    kValues<V, L>[n](s, keys + r, score + r * kScoreStride, g.dim, prefetch && r == 0,
                     to + r * g.stride, g.stride);
    r += n;
  }
}

// The rows of one item.
struct Rows {
  const AttentionShape& g;
  const AttentionWork& w;
  int count;

  COHORT_INLINE int position(int row) const {
    return w.queries->start + w.item->q0 + row / g.group;
  }
  COHORT_INLINE int64_t offset(int row) const {
    return (int64_t(w.item->q0 + row / g.group) * g.heads + w.item->kv_head * g.group +
            row % g.group) *
           g.dim;
  }
  template <class V>
  COHORT_INLINE RowTree<V> tree(int row) const {
    return {w.scratch->levels + int64_t(row) * g.stride, int64_t(count) * g.stride, g.dim};
  }
};

// Queries of a tile, scaled: [dim][row].
template <class V>
void pack_queries(const Rows& rows) {
  const int dim = rows.g.dim;
  for (int row = 0; row < rows.count;) {
    const int n = tile_rows<V>(rows.count - row);
    for (int r = 0; r < n; r++) {
      const float* from = rows.w.queries->q + rows.offset(row + r);
      float* to = rows.w.scratch->query + row * dim + r;
      for (int d = 0; d < dim; d++) to[d * n] = from[d] * rows.g.query_scale;
    }
    row += n;
  }
}

// All rows over one split.
template <class V, class L>
void attend_split(const Rows& rows, const Split& s, int split, bool many) {
  const AttentionShape& g = rows.g;
  const auto unit = unsigned(split - rows.w.item->split0);
  for (int row = 0, n; row < rows.count; row += n) {
    n = tile_rows<V>(rows.count - row);
    int keys[kTileRows];
    for (int r = 0; r < n; r++) keys[r] = visible_keys(rows.position(row + r), split);
    if (keys[n - 1] == 0) continue;
    const float* q = rows.w.scratch->query + row * g.dim;
    float* sums = rows.tree<V>(row).place(unit, rows.w.scratch->fresh);
    if (many)
      tile<V, F32<V>>(g, s, q, n, keys, false, rows.w.scratch->scores, sums);
    else
      tile<V, L>(g, s, q, n, keys, rows.count <= kTileRows && row == 0, rows.w.scratch->scores,
                 sums);
    for (int r = 0; r < n; r++)
      if (keys[r] > 0) rows.tree<V>(row + r).push(unit, sums + r * g.stride);
  }
}

template <class V, class L>
void attend(const AttentionWork& w) {
  const AttentionShape& g = *w.shape;
  const AttentionItem& item = *w.item;
  const Rows rows{g, w, (item.q1 - item.q0) * g.group};
  pack_queries<V>(rows);
  const bool many = rows.count > 2 * kTileRows && L::kBytes != 4;
  for (int split = item.split0; split < item.split1; split++) {
    Split s;
    locate(w, split, s);
    if (many) widen<V, L>(w, blocks_of(*w.queries, item, split), s);
    attend_split<V, L>(rows, s, split, many);
  }
  for (int row = 0; row < rows.count; row++) {
    const int units = least(rows.position(row) / kSplit + 1, item.split1) - item.split0;
    if (units <= 0) continue;
    const float* sum = rows.tree<V>(row).finish(unsigned(units));
    if (item.merge < 0)
      finish_row<V>(sum, w.queries->out + rows.offset(row), g.dim);
    else
      copy(sum, g.dim + 2, w.partials + int64_t(row) * g.stride);
  }
}

template <class V>
void attend_any(const AttentionWork& w) {
  if (w.shape->dtype == DType::f32) return attend<V, F32<V>>(w);
  if (w.shape->dtype == DType::bf16) return attend<V, Bf16<V>>(w);
  attend<V, F16<V>>(w);
}

template <class V>
void merge_any(const AttentionWork& w, const AttentionMerge& m) {
  const AttentionShape& g = *w.shape;
  const Rows rows{g, w, m.rows};
  const RowTree<V> tree{w.scratch->levels, g.stride, g.dim};
  for (int row = 0; row < m.rows; row++) {
    const int pieces = least(m.pieces, rows.position(row) / (kSplit * m.piece_splits) + 1);
    for (int p = 0; p < pieces; p++) {
      float* sums = tree.place(unsigned(p), w.scratch->fresh);
      copy(w.partials + (int64_t(p) * m.rows + row) * g.stride, g.dim + 2, sums);
      tree.push(unsigned(p), sums);
    }
    finish_row<V>(tree.finish(unsigned(pieces)), w.queries->out + rows.offset(row), g.dim);
  }
}

}  // namespace
}  // namespace cohort
