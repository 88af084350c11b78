// SPDX-License-Identifier: Apache-2.0
// What an attention kernel is given (docs/arithmetic.md section 5). Plain structs, because units of
// every instruction set include this.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace cohort {

constexpr int kBlockLanes = 16;  // tokens of a KV block
constexpr int kSplit = 256;      // keys that share one maximum; splits start at position 0
constexpr int kSplitBlocks = kSplit / kBlockLanes;
constexpr int kPassRows = 12;      // rows = (position, head of the group) of one pass, at most
constexpr int kTilePassRows = 16;  // the same on AMX tiles
constexpr int kWeightStride = kSplit + 32;  // of their weights: an odd number of cache lines
constexpr int kItemRows = 192;  // rows of one item: their partial results must stay in L2
constexpr float kLowestScore = -0x1.fffffep127f;  // maximum of no keys: finite, so that
                                                  // -inf scores weigh 0 and not NaN

struct AttentionShape {
  int heads, kv_heads, dim;
  int most_heads;  // query heads of one KV head
  DType dtype;
  bool bf16;  // of a bf16 cache: in bf16 arithmetic (docs/arithmetic.md section 9)
  int64_t element, plane, chunk, block;  // bytes
  float query_scale;                     // log2(e) / sqrt(dim), rounded once
  int stride;                            // of partial results: sums [dim], maximum, weight, padding
};

// Queries of one sequence. q, out: [count][heads][dim].
struct AttentionQueries {
  const int32_t* blocks;
  int start, count;
  const float* q;
  float* out;
};

// A KV head, and those of the rank's query heads that read it: [first, first + count).
struct AttentionHeads {
  int kv_head, first, count;
};

// What one thread does at a time: positions [q0, q1) of an entry, one KV head, splits [split0,
// split1).
struct AttentionItem {
  int entry;
  AttentionHeads heads;
  int q0, q1, split0, split1;
  int merge;            // -1: the item covers all splits and finishes the result itself
  int64_t partial_row;  // else its partial results go to this row of the plan's buffer
  float cost;
  // Not 0: so many sequences whose first blocks are the same, each with its last position. `entry`
  // is the first of them, all see all keys of the splits, and each has a merge of its own.
  int first_sharer = 0, sharers = 0;
};

// One sequence of an item that is shared.
struct AttentionSharer {
  int entry, merge;
  int64_t row;          // of the query, from the first sharer's
  int64_t partial_row;  // as in AttentionItem
};

// Items of one (entry, kv head, positions) whose splits were divided into pieces, each a subtree.
// The splits are counted in units of unit_splits, a power of two. The first pieces are a unit each,
// the others as many as their place in the tree allows, up to 2^most_level.
struct AttentionMerge {
  int64_t first_row;  // of partial results: [piece][row]
  int rows, pieces, units, unit_splits;
  int single;  // units that are a piece each
  int most_level = 0;
};

// The piece that begins at `unit` has 2^level units; the last one may have fewer.
[[maybe_unused]] static int piece_level(const AttentionMerge& m, int unit) {
  if (unit < m.single) return 0;
  int level = 0;
  while (level < m.most_level && unit % (2 << level) == 0) level++;
  return level;
}

// One thread's memory. levels: partial results of complete subtrees, [level][row][stride].
struct AttentionScratch {
  float *query, *scores, *fresh, *levels, *keys, *values;
  uint16_t* weights;  // [kTilePassRows][kWeightStride] in bf16
};

// next: what this thread does after item, so that its keys can be on their way, or null.
struct AttentionWork {
  const AttentionShape* shape;
  const std::byte* pool;
  const AttentionQueries* queries;
  const AttentionItem* item;
  const AttentionQueries* next_queries;
  const AttentionItem* next;
  float* partials;  // of the item, or of its merge [piece][row]; of the plan if it is shared
  AttentionScratch* scratch;
  const AttentionSharer* sharers;  // of the item, or null
  bool bf16_tiles;                 // whether AMX tiles may do it (kernels/cpu/amx_check.h)
};
using AttendItem = void(const AttentionWork&);
using MergePieces = void(const AttentionWork&, const AttentionMerge&);
AttendItem attend_portable, attend_avx2, attend_avx512, attend_amx;
MergePieces merge_portable, merge_avx2, merge_avx512;

// A row is a (position, head of the item), or for a shared item a (sharer, head of the item).
[[maybe_unused]] static int item_rows(const AttentionWork& w) {
  return (w.sharers ? w.item->sharers : w.item->q1 - w.item->q0) * w.item->heads.count;
}
// Of sharers one that all of the item's keys are visible to, as they are to the others.
[[maybe_unused]] static int row_position(const AttentionWork& w, int row) {
  return w.queries->start + w.item->q0 + (w.sharers ? 0 : row / w.item->heads.count);
}
// Where its query begins, in elements from the queries' first.
[[maybe_unused]] static int64_t row_offset(const AttentionWork& w, int row) {
  const AttentionHeads& heads = w.item->heads;
  const int i = row / heads.count;
  const int64_t query = w.sharers ? w.sharers[i].row : w.item->q0 + i;
  return (query * w.shape->heads + heads.first + row % heads.count) * w.shape->dim;
}
[[maybe_unused]] static float* row_partial(const AttentionWork& w, int row) {
  const int count = w.item->heads.count;
  const int64_t at = w.sharers ? w.sharers[row / count].partial_row + row % count : row;
  return w.partials + at * w.shape->stride;
}

// Keys of a split that the query at `position` may see.
[[maybe_unused]] static int visible_keys(int position, int split) {
  const int n = position + 1 - split * kSplit;
  return n < 0 ? 0 : n > kSplit ? kSplit : n;
}

}  // namespace cohort
