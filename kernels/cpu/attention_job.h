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
constexpr int kTileRows = 12;   // rows = (position, head of the group) of one pass, at most
constexpr int kItemRows = 192;  // rows of one item: their partial results must stay in L2
constexpr float kLowestScore = -0x1.fffffep127f;  // maximum of no keys: finite, so that
                                                  // -inf scores weigh 0 and not NaN

struct AttentionShape {
  int heads, kv_heads, dim, group;
  DType dtype;
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

// What one thread does at a time: positions [q0, q1) of an entry, one kv head, splits [split0,
// split1).
struct AttentionItem {
  int entry, kv_head, q0, q1, split0, split1;
  int merge;            // -1: the item covers all splits and finishes the result itself
  int64_t partial_row;  // else its partial results go to this row of the plan's buffer
  float cost;
};

// Items of one (entry, kv head, positions) whose splits were divided into pieces of equal subtrees.
struct AttentionMerge {
  int64_t first_row;
  int rows, pieces, piece_splits;
};

// One thread's memory. levels: partial results of complete subtrees, [level][row][stride].
struct AttentionScratch {
  float *query, *scores, *fresh, *levels, *keys, *values;
};

// next: what this thread does after item, so that its keys can be on their way, or null.
struct AttentionWork {
  const AttentionShape* shape;
  const std::byte* pool;
  const AttentionQueries* queries;
  const AttentionItem* item;
  const AttentionQueries* next_queries;
  const AttentionItem* next;
  float* partials;  // of the item, or of its merge [piece][row]
  AttentionScratch* scratch;
};
using AttendItem = void(const AttentionWork&);
using MergePieces = void(const AttentionWork&, const AttentionMerge&);
AttendItem attend_portable, attend_avx2, attend_avx512;
MergePieces merge_portable, merge_avx2, merge_avx512;

// Keys of a split that the query at `position` may see.
[[maybe_unused]] static int visible_keys(int position, int split) {
  const int n = position + 1 - split * kSplit;
  return n < 0 ? 0 : n > kSplit ? kSplit : n;
}

}  // namespace cohort
