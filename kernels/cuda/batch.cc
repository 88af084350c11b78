// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/batch.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/attention_items.h"

namespace cohort::cuda {
namespace {

// Enough items to keep every multiprocessor of a large GPU busy to the end of a step.
constexpr int64_t kTargetItems = 1024;
// Partial results that a workspace has room for whatever the limits: 69 MB at dim 128. Longer
// sequences than these suffice for are computed by fewer items, with the same result.
constexpr int64_t kPartialRows = 131072;

int64_t blocks_of(int64_t positions) { return (positions + kBlockTokens - 1) / kBlockTokens; }
int64_t splits_of(int64_t positions) { return (positions + kSplitKeys - 1) / kSplitKeys; }
int64_t tile_pairs(const KvGeometry& g) { return g.dim <= kMaxWideDim ? kWidePairs : kThinPairs; }

// Where the arrays begin, in int32 from the beginning. What varies most in size is last.
struct Layout {
  int64_t position, row_entry, first_row, start, count, first_block, totals, items, end;
  int64_t max_items, partial_rows;

  Layout(const KvGeometry& g, const BatchLimits& limits) {
    const int64_t rows = limits.max_rows, entries = limits.max_entries;
    const int64_t tiles = rows * g.most_heads() / tile_pairs(g) + std::min(entries, rows);
    const int64_t splits = splits_of(limits.max_positions);
    max_items = g.kv_heads * tiles + 2 * kTargetItems;
    partial_rows =
        std::min(rows * g.heads * splits, std::max(kPartialRows, int64_t(g.heads) * splits));
    int64_t at = 0;
    const auto take = [&](int64_t n) { return std::exchange(at, at + (n + 3) / 4 * 4); };
    position = take(rows), row_entry = take(rows);
    first_row = take(entries), start = take(entries), count = take(entries);
    first_block = take(entries), totals = take(kTotals);
    items = at;
    end = items + (max_items + g.kv_heads * tiles) * kWorkInts +
          entries * blocks_of(limits.max_positions);
  }
};

// A tile of one entry's pairs of one KV head.
struct Tile {
  int32_t entry, kv_head, first_pair, pairs, splits;
  // Wide tiles are bound by arithmetic and take longer for the same keys.
  int64_t cost() const { return int64_t(splits) * (pairs <= kThinPairs ? 1 : 3); }
};

std::vector<Tile> tiles_of(const KvGeometry& g, std::span<const AttentionEntry> entries) {
  std::vector<Tile> tiles;
  const int64_t step = tile_pairs(g), most = g.most_heads();
  for (size_t i = 0; i < entries.size(); i++)
    for (int64_t first = 0; first < entries[i].count * most; first += step)
      for (int h = 0; h < g.kv_heads; h++) {
        const int64_t heads = g.heads_of(h),
                      pairs = std::min(step, entries[i].count * heads - first);
        if (pairs <= 0) continue;
        const int64_t last_position = entries[i].start + (first + pairs - 1) / heads;
        tiles.push_back(
            {int32_t(i), h, int32_t(first), int32_t(pairs), int32_t(splits_of(last_position + 1))});
      }
  // Blocks of threads take items in order: the last to start are short.
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const Tile& a, const Tile& b) { return a.cost() > b.cost(); });
  return tiles;
}

// Cuts tiles into items. How finely follows from the whole batch and changes no result.
class Cutter {
 public:
  Cutter(const KvGeometry& g, const Layout& layout, int32_t* totals, std::byte* to)
      : g_(g), room_(layout.partial_rows), max_items_(layout.max_items), totals_(totals), to_(to) {}

  // Returns how many int32 of work there are.
  int64_t cut(const std::vector<Tile>& tiles) {
    int64_t splits = 0;
    for (const Tile& t : tiles) splits += t.splits;
    const int piece = int(std::max<int64_t>(1, splits / kTargetItems));
    for (const Tile& t : tiles) add(t, piece);
    COHORT_CHECK_LE(items_, max_items_);
    for (const AttentionWork& merge : merges_) put(merge);
    totals_[kMergeItems] = int32_t(merges_.size());
    return (items_ + int64_t(merges_.size())) * kWorkInts;
  }

 private:
  void add(const Tile& t, int piece) {
    const int64_t rows = int64_t(t.splits) * t.pairs;
    const bool whole = t.splits <= piece || used_ + rows > room_;
    if (whole) piece = t.splits;
    AttentionWork work{t.entry,
                       t.kv_head,
                       t.first_pair,
                       t.pairs,
                       0,
                       t.splits,
                       -1,
                       int16_t(g_.first_head(t.kv_head)),
                       int16_t(g_.heads_of(t.kv_head))};
    if (!whole) {
      work.partial_row = int32_t(used_);
      merges_.push_back(work);
      used_ += rows;
    }
    for (int s = 0; s < t.splits; s += piece) {
      AttentionWork item = work;
      item.split_begin = s, item.split_end = std::min(s + piece, t.splits);
      if (!whole) item.partial_row += s * t.pairs;
      put(item), items_++;
      totals_[t.pairs <= kThinPairs ? kThinItems : kWideItems]++;
    }
  }
  void put(const AttentionWork& work) {
    std::memcpy(to_, &work, sizeof work);
    to_ += sizeof work;
  }

  const KvGeometry& g_;
  const int64_t room_, max_items_;
  int32_t* const totals_;
  std::byte* to_;
  std::vector<AttentionWork> merges_;
  int64_t used_ = 0, items_ = 0;
};

void check_entries(const BatchLimits& limits, std::span<const AttentionEntry> entries,
                   int64_t rows) {
  COHORT_CHECK_LE(rows, limits.max_rows);
  COHORT_CHECK_LE(int64_t(entries.size()), limits.max_entries);
  for (const AttentionEntry& e : entries) {
    COHORT_CHECK_LE(1, e.count);
    COHORT_CHECK_LE(0, e.start);
    COHORT_CHECK_LE(e.start + e.count, limits.max_positions);
    COHORT_CHECK_LE(0, e.first_row);
    COHORT_CHECK_LE(e.first_row + e.count, rows);
  }
}

}  // namespace

BatchArrays::BatchArrays(const KvGeometry& geometry, const BatchLimits& limits)
    : geometry_(geometry), limits_(limits) {
  COHORT_CHECK_LE(geometry.dim, kMaxGpuHeadDim);
  COHORT_CHECK(geometry.consistent());
}

size_t BatchArrays::bytes() const {
  return size_t(Layout(geometry_, limits_).end) * sizeof(int32_t);
}

size_t BatchArrays::workspace_bytes() const {
  return size_t(Layout(geometry_, limits_).partial_rows * (geometry_.dim + kPartialExtra)) *
         sizeof(float);
}

size_t BatchArrays::fill(std::byte* host, std::span<const AttentionEntry> entries,
                         int64_t rows) const {
  check_entries(limits_, entries, rows);
  const Layout layout(geometry_, limits_);
  int32_t* const array = reinterpret_cast<int32_t*>(host);
  std::fill_n(array + layout.position, limits_.max_rows, -1);
  std::fill(array + layout.row_entry, array + layout.items, 0);
  int32_t* const totals = array + layout.totals;
  totals[kEntries] = int32_t(entries.size());
  int64_t used = 0;  // int32 behind layout.items
  if (geometry_.kv_heads > 0)
    used = Cutter(geometry_, layout, totals, reinterpret_cast<std::byte*>(array + layout.items))
               .cut(tiles_of(geometry_, entries));
  for (size_t i = 0; i < entries.size(); i++) {
    const AttentionEntry& e = entries[i];
    for (int32_t r = 0; r < e.count; r++) {
      array[layout.position + e.first_row + r] = e.start + r;
      array[layout.row_entry + e.first_row + r] = int32_t(i);
    }
    array[layout.first_row + int64_t(i)] = int32_t(e.first_row);
    array[layout.start + int64_t(i)] = e.start;
    array[layout.count + int64_t(i)] = e.count;
    array[layout.first_block + int64_t(i)] = int32_t(used);
    const int64_t blocks = blocks_of(e.start + e.count);
    std::copy_n(e.blocks, blocks, array + layout.items + used);
    used += blocks;
  }
  return size_t(layout.items + used) * sizeof(int32_t);
}

DeviceBatch BatchArrays::view(const std::byte* device, void* workspace) const {
  const Layout layout(geometry_, limits_);
  const int32_t* const array = reinterpret_cast<const int32_t*>(device);
  DeviceBatch view{};
  view.position = array + layout.position;
  view.row_entry = array + layout.row_entry;
  view.first_row = array + layout.first_row;
  view.start = array + layout.start;
  view.count = array + layout.count;
  view.first_block = array + layout.first_block;
  view.blocks = array + layout.items;
  view.totals = array + layout.totals;
  view.items = array + layout.items;
  view.max_items = int32_t(layout.max_items);
  view.partials = static_cast<float*>(workspace);
  return view;
}

}  // namespace cohort::cuda
