// SPDX-License-Identifier: Apache-2.0
// Attention work as it lies in DeviceBatch::items. Plain data for host and device.
//
// A row of work is a pair (position, query head of this rank that reads the KV head): where there
// are `heads` of these, pair p of an entry and KV head is the entry's position p / heads and head
// first_head + p % heads of the rank. An item is a tile of
// pairs and a range of splits of kSplitKeys keys. Items that see all keys of their tile write
// results; others leave one partial result per split and pair, which a merge item adds up later:
//
//   DeviceBatch::items = items, largest first | merge items | block ids
//
// Partial row partial_row + s * pairs + r is split s of pair first_pair + r of one tile.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cohort::cuda {

// Of DeviceBatch::totals. `next` is the item that a block of threads takes next: the kernels count
// it up and leave it at 0.
enum Total : int { kEntries, kThinItems, kWideItems, kMergeItems, kNextItem, kTotals = 8 };

// Thin tiles fill one tile of a tensor core and are shared by all warps; wide ones have 16 pairs a
// warp.
inline constexpr int kThinPairs = 16, kWidePairs = 64;
// Wider heads have thin tiles only.
inline constexpr int kMaxWideDim = 128;

struct alignas(16) AttentionWork {
  int32_t entry, kv_head;
  int32_t first_pair, pairs;
  int32_t split_begin, split_end;
  int32_t partial_row;        // of split_begin; -1: splits are all that there are, write results
  int16_t first_head, heads;  // the rank's query heads that read the KV head
};
inline constexpr int kWorkInts = sizeof(AttentionWork) / sizeof(int32_t);

// Floats of a partial row: sums over keys [dim], largest score, sum of weights, padding to 16
// bytes.
inline constexpr int kPartialExtra = 4;

}  // namespace cohort::cuda
