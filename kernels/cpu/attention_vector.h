// SPDX-License-Identifier: Apache-2.0
// The fast attention kernels, written once over a vector type V: items made of tiles, and the tree
// over splits. Included by one unit per instruction set, hence the unnamed namespace and no use of
// the standard library.
#pragma once
#include "kernels/cpu/attention_bf16.h"
#include "kernels/cpu/attention_tile.h"

namespace cohort {
namespace {

// ---- the tree over splits
// ------------------------------------------------------------------------
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
  // of: levels of the subtree that it is.
  COHORT_INLINE float* place(unsigned unit, float* fresh, int of = 0) const {
    return unit >> of & 1 ? fresh : first + of * step;
  }
  COHORT_INLINE void push(unsigned unit, float* x, int of = 0) const {
    float* level = first + of * step;
    for (unit >>= of; unit & 1; unit >>= 1, level += step)
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
// ------------------------------------------------------------------------------------
COHORT_INLINE int blocks_of(const AttentionQueries& e, const AttentionItem& item, int split) {
  return (visible_keys(e.start + item.q1 - 1, split) + kBlockLanes - 1) / kBlockLanes;
}

// Where the blocks of a split lie for the item's kv head.
COHORT_INLINE void locate(const AttentionWork& w, const AttentionQueries& e,
                          const AttentionItem& item, int split, const std::byte** at) {
  const int last = blocks_of(e, item, split) - 1;
  const int32_t* ids = e.blocks + split * kSplitBlocks;
  const std::byte* head = w.pool + item.heads.kv_head * w.shape->chunk;
  for (int b = 0; b < kSplitBlocks + kMostScoreBlocks; b++)
    at[b] = head + ids[least(b, last)] * w.shape->block;
}

template <class L>
COHORT_INLINE void locate(const AttentionWork& w, int split, Split& s) {
  locate(w, *w.queries, *w.item, split, s.k);
  if (split + 1 < w.item->split1)
    locate(w, *w.queries, *w.item, split + 1, s.next_k);
  else if (w.next)
    locate(w, *w.next_queries, *w.next, w.next->split0, s.next_k);
  else
    locate(w, *w.queries, *w.item, split, s.next_k);
  for (int b = 0; b < kSplitBlocks; b++) {
    s.v[b] = s.k[b] + w.shape->plane;
    s.next_v[b] = s.next_k[b] + w.shape->plane;
  }
  if constexpr (L::kScaled)
    for (int b = 0; b < kSplitBlocks + kMostScoreBlocks; b++)
      s.scales[b] = reinterpret_cast<const float*>(s.k[b] + 2 * w.shape->plane);
}

// Prefill: many tiles use the same keys, so they are widened to f32 once.
template <class V, class L>
void widen(const AttentionWork& w, int blocks, Split& s) {
  const int n = w.shape->dim * kBlockLanes;
  for (int b = 0; b < blocks; b++)
    for (int i = 0; i < n; i += V::kLanes) {
      if (i * L::kBytes % 64 == 0) {
        __builtin_prefetch(s.next_k[b] + i * L::kBytes, 0, 2);
        __builtin_prefetch(s.next_v[b] + i * L::kBytes, 0, 2);
      }
      V::store(w.scratch->keys + b * n + i, L::load(s.k[b] + i * L::kBytes));
      V::store(w.scratch->values + b * n + i, L::load(s.v[b] + i * L::kBytes));
    }
  for (int b = 0; b < kSplitBlocks + kMostScoreBlocks; b++) {
    const int from = least(b, blocks - 1) * n;
    s.k[b] = reinterpret_cast<const std::byte*>(w.scratch->keys + from);
    if (b < kSplitBlocks) s.v[b] = reinterpret_cast<const std::byte*>(w.scratch->values + from);
  }
}

// The rows of one item.
struct Rows {
  const AttentionShape& g;
  const AttentionWork& w;
  int count;

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
      const float* from = rows.w.queries->q + row_offset(rows.w, row + r);
      float* to = rows.w.scratch->query + row * dim + r;
      for (int d = 0; d < dim; d++) to[d * n] = from[d] * rows.g.query_scale;
      if (rows.g.bf16)
        for (int d = 0; d < dim; d++) to[d * n] = rounded_to_bf16(to[d * n]);
    }
    row += n;
  }
}

// By one chain a sum, or by two.
template <class V, class L, bool bf16, class... Arguments>
COHORT_INLINE void tile_of(const Arguments&... arguments) {
  if constexpr (bf16)
    bf16_tile<V, L>(arguments...);
  else
    tile<V, L>(arguments...);
}

// The partial results of rows [row, row + n), those that see any of the split's keys.
template <class V>
COHORT_INLINE void push_rows(const Rows& rows, int row, int n, const int* keys, unsigned unit,
                             float* sums) {
  for (int r = 0; r < n; r++)
    if (keys[r] > 0) rows.tree<V>(row + r).push(unit, sums + r * rows.g.stride);
}

// All rows over one split.
template <class V, class L, bool bf16>
void attend_split(const Rows& rows, const Split& s, int split, bool many) {
  const AttentionShape& g = rows.g;
  const auto unit = unsigned(split - rows.w.item->split0);
  for (int row = 0, n; row < rows.count; row += n) {
    n = tile_rows<V>(rows.count - row);
    int keys[kPassRows];
    for (int r = 0; r < n; r++) keys[r] = visible_keys(row_position(rows.w, row + r), split);
    if (keys[n - 1] == 0) continue;
    const float* q = rows.w.scratch->query + row * g.dim;
    float* sums = rows.tree<V>(row).place(unit, rows.w.scratch->fresh);
    if (many)
      tile_of<V, F32<V, L::kScaled>, bf16>(g, s, q, n, keys, false, rows.w.scratch->scores, sums);
    else
      tile_of<V, L, bf16>(g, s, q, n, keys, row == 0, rows.w.scratch->scores, sums);
    push_rows<V>(rows, row, n, keys, unit, sums);
  }
}

// The results of all rows, or their partial results.
template <class V>
void finish_all(const Rows& rows) {
  const AttentionWork& w = rows.w;
  for (int row = 0; row < rows.count; row++) {
    const int units = least(row_position(w, row) / kSplit + 1, w.item->split1) - w.item->split0;
    if (units <= 0) continue;
    const float* sum = rows.tree<V>(row).finish(unsigned(units));
    if (w.item->merge < 0)
      finish_row<V>(sum, w.queries->out + row_offset(w, row), rows.g.dim);
    else
      copy(sum, rows.g.dim + 2, row_partial(w, row));
  }
}

template <class V, class L, bool bf16 = false>
void attend(const AttentionWork& w) {
  const AttentionShape& g = *w.shape;
  const AttentionItem& item = *w.item;
  const Rows rows{g, w, item_rows(w)};
  pack_queries<V>(rows);
  const bool many = rows.count > 2 * kPassRows && L::kBytes != 4;
  for (int split = item.split0; split < item.split1; split++) {
    Split s;
    locate<L>(w, split, s);
    if (many) widen<V, L>(w, blocks_of(*w.queries, item, split), s);
    attend_split<V, L, bf16>(rows, s, split, many);
  }
  finish_all<V>(rows);
}

template <class V>
void attend_any(const AttentionWork& w) {
  if (w.shape->dtype == DType::f32) return attend<V, F32<V>>(w);
  if (w.shape->bf16) return attend<V, Bf16<V>, true>(w);
  if (w.shape->dtype == DType::bf16) return attend<V, Bf16<V>>(w);
  if (w.shape->dtype == DType::i8) return attend<V, I8<V>>(w);
  attend<V, F16<V>>(w);
}

template <class V>
void merge_any(const AttentionWork& w, const AttentionMerge& m) {
  const AttentionShape& g = *w.shape;
  const RowTree<V> tree{w.scratch->levels, g.stride, g.dim};
  for (int row = 0; row < m.rows; row++) {
    const int units = row_position(w, row) / (kSplit * m.unit_splits) + 1;
    int unit = 0;
    for (int p = 0; unit < units; p++) {
      const int level = piece_level(m, unit);
      float* sums = tree.place(unsigned(unit), w.scratch->fresh, level);
      copy(w.partials + (int64_t(p) * m.rows + row) * g.stride, g.dim + 2, sums);
      tree.push(unsigned(unit), sums, level);
      unit += 1 << level;
    }
    finish_row<V>(tree.finish(unsigned(unit)), w.queries->out + row_offset(w, row), g.dim);
  }
}

}  // namespace
}  // namespace cohort
