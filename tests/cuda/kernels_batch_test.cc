// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/batch.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <tuple>
#include <vector>

#include "kernels/cuda/attention_items.h"

namespace cohort {
namespace {

using cuda::AttentionWork;

// The arrays of a batch, in memory that is exactly as long as the layout says.
struct Filled {
  Filled(const KvGeometry& g, const cuda::BatchLimits& limits,
         const std::vector<AttentionEntry>& entries, int64_t rows)
      : arrays(g, limits), host(arrays.bytes(), std::byte(0x77)) {
    used = arrays.fill(host.data(), entries, rows);
    view = arrays.view(host.data(), nullptr);
  }
  std::vector<AttentionWork> work(int first, int count) const {
    std::vector<AttentionWork> out(static_cast<size_t>(count));
    if (count == 0) return out;  // memcpy may not be told of a null pointer
    std::memcpy(out.data(), view.items + first * cuda::kWorkInts, out.size() * sizeof(out[0]));
    return out;
  }
  int item_count() const { return view.totals[cuda::kThinItems] + view.totals[cuda::kWideItems]; }
  std::vector<AttentionWork> items() const { return work(0, item_count()); }
  std::vector<AttentionWork> merges() const {
    return work(item_count(), view.totals[cuda::kMergeItems]);
  }

  cuda::BatchArrays arrays;
  std::vector<std::byte> host;
  size_t used = 0;
  cuda::DeviceBatch view{};
};

std::vector<int32_t> numbered(int n, int first) {
  std::vector<int32_t> ids;
  for (int i = 0; i < n; i++) ids.push_back(first + i);
  return ids;
}

TEST(BatchArrays, TellsRowsAndBlocks) {
  const std::vector<int32_t> a = numbered(3, 100), b = numbered(1, 200);
  const Filled f({4, 2, 64, DType::f16}, {8, 4, 64}, {{a.data(), 1, 31, 3}, {b.data(), 5, 0, 1}},
                 7);
  const cuda::DeviceBatch& v = f.view;
  EXPECT_EQ(std::vector<int32_t>(v.position, v.position + 8),
            (std::vector<int32_t>{-1, 31, 32, 33, -1, 0, -1, -1}));
  for (int row : {1, 2, 3}) EXPECT_EQ(v.row_entry[row], 0);
  EXPECT_EQ(v.row_entry[5], 1);
  EXPECT_EQ(v.totals[cuda::kEntries], 2);
  EXPECT_EQ(v.totals[cuda::kNextItem], 0);
  EXPECT_EQ(std::make_tuple(v.first_row[0], v.start[0], v.count[0]), std::make_tuple(1, 31, 3));
  EXPECT_EQ(std::make_tuple(v.first_row[1], v.start[1], v.count[1]), std::make_tuple(5, 0, 1));
  for (int i = 0; i < 3; i++) EXPECT_EQ(v.blocks[v.first_block[0] + i], 100 + i);
  EXPECT_EQ(v.blocks[v.first_block[1]], 200);
  const auto* end = reinterpret_cast<const std::byte*>(v.blocks + v.first_block[1] + 1);
  EXPECT_EQ(f.used, size_t(end - f.host.data()));
}

TEST(BatchArrays, AddressesDoNotDependOnTheBatch) {
  const std::vector<int32_t> ids = numbered(4, 0);
  const cuda::BatchLimits limits{64, 4, 64};
  const KvGeometry g{4, 2, 64, DType::f16};
  const cuda::BatchArrays arrays(g, limits);
  std::vector<std::byte> host(arrays.bytes());
  const cuda::DeviceBatch before = arrays.view(host.data(), &host);
  arrays.fill(host.data(), std::vector<AttentionEntry>{{ids.data(), 0, 0, 64}}, 64);
  const cuda::DeviceBatch after = arrays.view(host.data(), &host);
  EXPECT_EQ(std::memcmp(&before, &after, sizeof before), 0);
  EXPECT_EQ(static_cast<void*>(before.partials), &host);
}

// Every (entry, KV head, pair) meets every split that it sees exactly once, in items of results or
// with a place of its own for a partial result that one merge item knows.
void expect_complete(const Filled& f, const KvGeometry& g,
                     const std::vector<AttentionEntry>& entries) {
  std::map<std::tuple<int, int, int, int>, int64_t> seen;  // entry, head, pair, split: partial row
  std::map<int64_t, int> places;
  const size_t row_bytes = size_t(g.dim + cuda::kPartialExtra) * sizeof(float);
  for (const AttentionWork& w : f.items()) {
    ASSERT_EQ(w.first_head, g.first_head(w.kv_head));
    ASSERT_EQ(w.heads, g.heads_of(w.kv_head));
    ASSERT_LE(w.first_pair + w.pairs, entries[size_t(w.entry)].count * w.heads);
    ASSERT_LT(w.split_begin, w.split_end);
    ASSERT_LE(w.pairs, g.dim <= cuda::kMaxWideDim ? cuda::kWidePairs : cuda::kThinPairs);
    for (int s = w.split_begin; s < w.split_end; s++)
      for (int r = 0; r < w.pairs; r++) {
        const int64_t place =
            w.partial_row < 0 ? -1 : w.partial_row + (s - w.split_begin) * w.pairs + r;
        ASSERT_LE(size_t(place + 1) * row_bytes, f.arrays.workspace_bytes());
        if (place >= 0) {
          ASSERT_EQ(places[place]++, 0);
        }
        ASSERT_TRUE(seen.insert({{w.entry, w.kv_head, w.first_pair + r, s}, place}).second);
      }
  }
  size_t merged = 0;
  for (const AttentionWork& w : f.merges())
    for (int s = 0; s < w.split_end; s++)
      for (int r = 0; r < w.pairs; r++, merged++)
        ASSERT_EQ(seen.at({w.entry, w.kv_head, w.first_pair + r, s}),
                  w.partial_row + s * w.pairs + r);
  EXPECT_EQ(merged, places.size());
  size_t expected = 0;
  for (size_t e = 0; e < entries.size(); e++)
    for (int h = 0; h < g.kv_heads; h++)
      for (int pair = 0; pair < entries[e].count * g.heads_of(h); pair++) {
        const int position = entries[e].start + pair / g.heads_of(h);
        for (int s = 0; s <= position / cuda::kSplitKeys; s++)
          ASSERT_TRUE(seen.contains({int(e), h, pair, s}));
        expected++;
      }
  EXPECT_GE(seen.size(), expected);
  EXPECT_LE(f.item_count(), f.view.max_items);
  EXPECT_LE(f.used, f.host.size());
}

TEST(BatchArrays, WorkIsCompleteAndWithinBounds) {
  const std::vector<int32_t> ids = numbered(2048, 0);
  struct Batch {
    KvGeometry g;
    cuda::BatchLimits limits;
    std::vector<AttentionEntry> entries;
  };
  std::vector<AttentionEntry> decode, long_decode, prompts;
  for (int i = 0; i < 64; i++) decode.push_back({ids.data(), i, 37 * i, 1});
  for (int i = 0; i < 96; i++) long_decode.push_back({ids.data(), i, 32767 - i, 1});
  for (int i = 0; i < 5; i++) prompts.push_back({ids.data(), 90 * i, 100 * i, 7 + 20 * i});
  const std::vector<Batch> batches = {
      {{9, 3, 64, DType::f16}, {64, 64, 4096}, decode},
      {{8, 8, 128, DType::f16}, {512, 5, 32768}, prompts},
      {{8, 2, 256, DType::bf16}, {512, 5, 32768}, prompts},
      {{40, 1, 64, DType::bf16}, {512, 64, 32768}, prompts},
      {{16, 4, 8, DType::f8_e4m3}, {96, 96, 32768}, long_decode},  // more than there is room for
      {{6, 3, 64, DType::f16, false, 4, 3}, {512, 64, 32768}, prompts},
      {{9, 2, 8, DType::f16, false, 8, 7}, {96, 96, 32768}, long_decode},
      {{4, 1, 64, DType::f16}, {64, 4, 4096}, {}},
  };
  for (const Batch& b : batches)
    expect_complete(Filled(b.g, b.limits, b.entries, b.limits.max_rows), b.g, b.entries);
}

TEST(BatchArrays, LargestItemsComeFirst) {
  const std::vector<int32_t> ids = numbered(64, 0);
  const Filled f({4, 4, 64, DType::f16}, {8, 4, 1024},
                 {{ids.data(), 0, 3, 1}, {ids.data(), 1, 900, 1}, {ids.data(), 2, 200, 1}}, 8);
  ASSERT_GT(f.item_count(), 3);
  EXPECT_EQ(f.items().front().entry, 1);
  EXPECT_EQ(f.items().back().entry, 0);
}

TEST(BatchArrays, ARankWithoutHeadsHasNoWork) {
  const std::vector<int32_t> ids = numbered(1, 7);
  const Filled f({0, 0, 64, DType::f16}, {8, 4, 64}, {{ids.data(), 0, 3, 1}}, 8);
  EXPECT_EQ(f.item_count(), 0);
  EXPECT_EQ(f.view.position[0], 3);
  EXPECT_EQ(f.arrays.workspace_bytes(), 0u);
}

}  // namespace
}  // namespace cohort
