// SPDX-License-Identifier: Apache-2.0
// Attention in bf16 arithmetic on tiles (docs/arithmetic.md section 9): scores and sums of values
// are products of tiles; what lies between them, and the tree over splits, are those of a vector
// type V (attention_vector.h). Tiles: see HardwareTiles. Included by one unit per pair of them.
#pragma once
#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/attention_vector.h"

namespace cohort {
namespace {

constexpr int kPairs = kChainLength / 2;            // of a tile
constexpr int kSplitSteps = kSplit / kChainLength;  // tiles of a split's values for 16 dimensions
static_assert(kTileRows == kTilePassRows && kTileRows == kBlockLanes && kTileRows == kPairs);
static_assert(kTileRowBytes == kChainLength * 2);
static_assert(kTilePassRows <= 2 * kPassRows, "fresh results have room for these");

// ---- keys and values as tiles ------------------------------------------------------------------
// A tile has 32 dimensions of 16 keys, or 16 dimensions of 32 keys' values; pairs of the 32 lie
// side by side. keys: [block][steps]; values: [16 dimensions][kSplitSteps].
struct TiledSplit {
  TileBytes *keys, *values;
  int steps;  // tiles that the dimensions of a key take; the last one is filled up with zeros
};

COHORT_INLINE int tiles_of(int n) { return (n + kChainLength - 1) / kChainLength; }

COHORT_INLINE TiledSplit tiled_split(const AttentionWork& w) {
  return {reinterpret_cast<TileBytes*>(w.scratch->keys),
          reinterpret_cast<TileBytes*>(w.scratch->values), tiles_of(w.shape->dim)};
}

// 16 of each.
COHORT_INLINE void pair_up(const std::byte* first, const std::byte* second, std::byte* to) {
  uint16_t a[kTileRows], b[kTileRows];
  uint32_t pairs[kTileRows];
  __builtin_memcpy(a, first, sizeof a);
  __builtin_memcpy(b, second, sizeof b);
  for (int i = 0; i < kTileRows; i++) pairs[i] = a[i] | uint32_t(b[i]) << 16;
  __builtin_memcpy(to, pairs, sizeof pairs);
}

// k: [dim][16 tokens]. next: what to ask memory for meanwhile.
COHORT_INLINE void tile_keys(const std::byte* k, const std::byte* next, int dim, TileBytes* to) {
  constexpr int kRowBytes = kBlockLanes * 2;
  for (int d = 0; d < dim; d += 2) {
    __builtin_prefetch(next + d * kRowBytes, 0, 2);
    pair_up(k + d * kRowBytes, k + (d + 1) * kRowBytes,
            to[d / kChainLength].bytes + d % kChainLength / 2 * kTileRowBytes);
  }
  const int rest = dim % kChainLength / 2;
  if (rest > 0)
    __builtin_memset(to[dim / kChainLength].bytes + rest * kTileRowBytes, 0,
                     size_t((kPairs - rest) * kTileRowBytes));
}

// Keys t and t + 1 of the split. Those from `count` on are zeros, whatever is in their memory.
COHORT_INLINE void tile_values(const Split& s, int t, int count, int dim, TileBytes* to) {
  static constexpr std::byte kZeros[kTileRows * 2] = {};
  const int bytes = dim * 2, row = t % kBlockLanes * bytes;
  const std::byte *v = s.v[t / kBlockLanes] + row, *next = s.next_v[t / kBlockLanes] + row;
  for (int at = 0; at < bytes; at += int(sizeof kZeros), to += kSplitSteps) {
    __builtin_prefetch(next + 2 * at, 0, 2);
    pair_up(t < count ? v + at : kZeros, t + 1 < count ? v + bytes + at : kZeros,
            to[t / kChainLength].bytes + t % kChainLength / 2 * kTileRowBytes);
  }
}

// The first `count` keys, which are those that some row of the item sees.
[[maybe_unused]] static void tile_split(const Split& s, int count, int dim, const TiledSplit& to) {
  for (int b = 0; b * kBlockLanes < count; b++)
    tile_keys(s.k[b], s.next_k[b], dim, to.keys + b * to.steps);
  for (int t = 0; t < tiles_of(count) * kChainLength; t += 2)
    tile_values(s, t, count, dim, to.values);
}

// ---- products ----------------------------------------------------------------------------------
// Rows times tiles: sums [row][16 for each group of columns].
struct TileProduct {
  const uint16_t* rows;  // each is `steps` times 32
  int64_t row_bytes;     // from row to row
  const TileBytes* columns;
  int apart;  // tiles from a group of 16 columns to the next
  int steps;
  float* sums;
  int64_t sum_bytes;  // from row to row
};

// N groups of columns, which hide the latency of products from each other.
template <int N, class Tiles>
COHORT_INLINE void multiply_groups(Tiles& tiles, const TileProduct& in, int group) {
  tiles.template zero<0>();
  if constexpr (N > 1) tiles.template zero<1>();
  if constexpr (N > 2) tiles.template zero<2>();
  if constexpr (N > 3) tiles.template zero<3>();
  const TileBytes* columns = in.columns + group * in.apart;
  for (int i = 0; i < in.steps; i++, columns++) {
    tiles.template load<4>(in.rows + i * kChainLength, in.row_bytes);
    tiles.template load<6>(columns[0].bytes, kTileRowBytes);
    tiles.template dot<0, 4, 6>();
    if constexpr (N > 1) {
      tiles.template load<7>(columns[in.apart].bytes, kTileRowBytes);
      tiles.template dot<1, 4, 7>();
    }
    if constexpr (N > 2) {
      tiles.template load<6>(columns[2 * in.apart].bytes, kTileRowBytes);
      tiles.template dot<2, 4, 6>();
    }
    if constexpr (N > 3) {
      tiles.template load<7>(columns[3 * in.apart].bytes, kTileRowBytes);
      tiles.template dot<3, 4, 7>();
    }
  }
  float* sums = in.sums + group * kTileRows;
  tiles.template store<0>(sums, in.sum_bytes);
  if constexpr (N > 1) tiles.template store<1>(sums + kTileRows, in.sum_bytes);
  if constexpr (N > 2) tiles.template store<2>(sums + 2 * kTileRows, in.sum_bytes);
  if constexpr (N > 3) tiles.template store<3>(sums + 3 * kTileRows, in.sum_bytes);
}

template <class Tiles>
void multiply_tiles(Tiles& tiles, const TileProduct& in, int groups) {
  int g = 0;
  for (; g + 4 <= groups; g += 4) multiply_groups<4>(tiles, in, g);
  if (groups - g >= 2) multiply_groups<2>(tiles, in, g), g += 2;
  if (g < groups) multiply_groups<1>(tiles, in, g);
}

// ---- a pass: up to 16 rows over one split ------------------------------------------------------
// Whether all are neither zero nor infinite nor NaN.
COHORT_INLINE bool all_ordinary(const float* x, int n) {
  constexpr uint32_t kExponent = 0x7f800000;
  uint32_t others = 0;
  for (int i = 0; i < n; i++) {
    uint32_t bits;
    __builtin_memcpy(&bits, x + i, 4);
    others |= uint32_t((bits & kExponent) == 0) | uint32_t((bits & kExponent) == kExponent);
  }
  return others == 0;
}

// The weights of a row, which bf16 holds; from `keys` to `end` it weighs nothing.
template <class V>
COHORT_INLINE void narrow_weights(const float* p, int keys, int end, uint16_t* to) {
  for (int j = 0; j < end; j += V::kLanes)
    V::store_halves(to + j, V::first(V::load(p + j), keys - j, V::set1(0)));
}

// The values of one row by vectors.
template <class V>
void sum_values(const Split& s, int keys, const float* p, int dim, float* sums) {
  const Flushing flushing;
  bf16_row_values<V, Bf16<V>>(s, keys, p, dim, sums);
}

// As bf16_tile(), with q [row][32 * steps] in bf16.
//
// In tiles, rows that see less than whole tiles of keys multiply the others by weights of 0. That
// is not what is specified, but differs only where values are infinite or NaN, which shows in sums
// that are not finite, and in signs of zeros, which are lost in whatever is not zero itself. So
// where sums are ordinary they are the specified ones; others are computed again.
template <class V, class Tiles>
void pass_tiles(Tiles& tiles, const AttentionWork& w, const Split& s, const uint16_t* q, int rows,
                const int* keys, float* to) {
  const AttentionShape& g = *w.shape;
  const TiledSplit tiled = tiled_split(w);
  const int most = keys[rows - 1], width = tiled.steps * kChainLength;  // the last row sees most
  float* score = w.scratch->scores;
  multiply_tiles(tiles,
                 {q, width * 2, tiled.keys, tiled.steps, tiled.steps, score, kScoreStride * 4},
                 (most + kBlockLanes - 1) / kBlockLanes);
  const int end = tiles_of(most) * kChainLength;
  for (int r = 0; r < rows; r++) {
    float *p = score + r * kScoreStride, *sums = to + r * g.stride;
    bf16_weigh<V>(p, keys[r], sums + g.dim, sums + g.dim + 1);
    narrow_weights<V>(p, keys[r], end, w.scratch->weights + r * kWeightStride);
  }
  multiply_tiles(tiles,
                 {w.scratch->weights, kWeightStride * 2, tiled.values, kSplitSteps, tiles_of(most),
                  to, g.stride * 4},
                 g.dim / kTileRows);
  for (int r = 0; r < rows; r++)
    if (keys[r] < end && !all_ordinary(to + r * g.stride, g.dim))
      sum_values<V>(s, keys[r], score + r * kScoreStride, g.dim, to + r * g.stride);
}

// ---- one item ----------------------------------------------------------------------------------
// Fewer rows have little use for tiles, which take as long to load, and wait for memory anyway.
constexpr int kFewestTileRows = 8;

COHORT_INLINE bool worth_tiles(const AttentionWork& w) {
  return w.bf16_tiles && w.shape->dim % kTileRows == 0 && item_rows(w) >= kFewestTileRows;
}

// Of the remaining rows, so that all passes have about as many.
COHORT_INLINE int pass_rows(int rows) {
  const int passes = (rows + kTilePassRows - 1) / kTilePassRows;
  return (rows + passes - 1) / passes;
}

// Queries, scaled and rounded: [row][width], the rest of a row being zeros.
template <class V>
void narrow_queries(const Rows& rows, int width, uint16_t* to) {
  const int dim = rows.g.dim;
  float* rounded = rows.w.scratch->scores;
  for (int d = dim; d < width; d++) rounded[d] = 0;
  for (int row = 0; row < rows.count; row++, to += width) {
    const float* q = rows.w.queries->q + row_offset(rows.w, row);
    for (int d = 0; d < dim; d++) rounded[d] = rounded_to_bf16(q[d] * rows.g.query_scale);
    for (int d = 0; d < width; d += V::kLanes) V::store_halves(to + d, V::load(rounded + d));
  }
}

// All rows over one split. Returns how many rows tiles are configured for, as it is given.
template <class V, class Tiles>
int pass_all(Tiles& tiles, const Rows& rows, const Split& s, int split, int configured) {
  const int width = tiles_of(rows.g.dim) * kChainLength;
  const auto* q = reinterpret_cast<const uint16_t*>(rows.w.scratch->query);
  const auto unit = unsigned(split - rows.w.item->split0);
  for (int row = 0, n; row < rows.count; row += n) {
    n = pass_rows(rows.count - row);
    int keys[kTilePassRows];
    for (int r = 0; r < n; r++) keys[r] = visible_keys(row_position(rows.w, row + r), split);
    if (keys[n - 1] == 0) continue;
    if (n != configured) tiles.configure(configured = n, kPairs);
    float* sums = rows.tree<V>(row).place(unit, rows.w.scratch->fresh);
    pass_tiles<V>(tiles, rows.w, s, q + int64_t(row) * width, n, keys, sums);
    push_rows<V>(rows, row, n, keys, unit, sums);
  }
  return configured;
}

// AttendItem, of what is worth tiles.
template <class V, class Tiles>
void attend_on_tiles(const AttentionWork& w) {
  const AttentionItem& item = *w.item;
  const Rows rows{*w.shape, w, item_rows(w)};
  const int last_position = w.queries->start + item.q1 - 1;
  const TiledSplit tiled = tiled_split(w);
  narrow_queries<V>(rows, tiled.steps * kChainLength,
                    reinterpret_cast<uint16_t*>(w.scratch->query));
  Tiles tiles;
  int configured = 0;
  for (int split = item.split0; split < item.split1; split++) {
    Split s;
    locate<Bf16<V>>(w, split, s);
    tile_split(s, visible_keys(last_position, split), w.shape->dim, tiled);
    configured = pass_all<V>(tiles, rows, s, split, configured);
  }
  tiles.release();
  finish_all<V>(rows);
}

}  // namespace
}  // namespace cohort
