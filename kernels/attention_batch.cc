// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_batch.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/attention_plan.h"

namespace cohort {
namespace {

AttentionShape shape_of(const KvGeometry& g) {
  AttentionShape s{};
  s.heads = g.heads;
  s.kv_heads = g.kv_heads;
  s.dim = g.dim;
  s.group = g.kv_heads > 0 ? g.group() : 0;
  s.dtype = g.dtype;
  s.element = bytes_of(g.dtype, 1);
  s.plane = int64_t(g.plane_bytes());
  s.chunk = int64_t(g.chunk_bytes());
  s.block = int64_t(g.block_bytes());
  s.query_scale = float(1.4426950408889634 / std::sqrt(double(g.dim)));
  s.stride = g.dim + 16;
  return s;
}

// Decode is bound by reading keys, prefill by arithmetic per row: a key costs about as much to read
// as four rows cost to use it.
float cost(const AttentionShape& s, int positions, int keys) {
  return float(keys) * float(positions * s.group + 4);
}

struct Cutter {
  AttentionBatch::Plan& plan;
  int threads;
  float target;  // of one item: eight items a thread even out what the model of cost gets wrong
  int64_t partial_rows = 0;

  // Positions [q0, q1) of entry i, all kv heads.
  void cut(int i, const AttentionEntry& e, int q0, int q1) {
    const AttentionShape& s = plan.shape;
    const int keys = e.start + q1, splits = (keys + kSplit - 1) / kSplit;
    int piece = 1;  // a power of two: pieces are then subtrees
    while (piece < splits && cost(s, q1 - q0, 2 * piece * kSplit) < target) piece *= 2;
    const int pieces = threads == 1 ? 1 : (splits + piece - 1) / piece;
    const int rows = (q1 - q0) * s.group;
    for (int h = 0; h < s.kv_heads; h++) {
      if (pieces == 1) {
        plan.items.push_back({i, h, q0, q1, 0, splits, -1, 0, cost(s, q1 - q0, keys)});
        continue;
      }
      for (int p = 0; p < pieces; p++) {
        const int first = p * piece, last = std::min(first + piece, splits);
        plan.items.push_back({i, h, q0, q1, first, last, int(plan.merges.size()),
                              partial_rows + int64_t(p) * rows,
                              cost(s, q1 - q0, std::min(last * kSplit, keys) - first * kSplit)});
      }
      plan.merges.push_back({partial_rows, rows, pieces, piece});
      partial_rows += int64_t(pieces) * rows;
    }
  }
};

}  // namespace

AttentionBatch::AttentionBatch(const KvGeometry& geometry, std::vector<AttentionEntry> entries,
                               int threads)
    : geometry_(geometry), entries_(std::move(entries)), plan_(std::make_unique<Plan>()) {
  COHORT_CHECK_EQ(geometry.dim % 8, 0);
  COHORT_CHECK_LE(geometry.dim, kMaxHeadDim);
  COHORT_CHECK(geometry.kv_heads == 0 || geometry.heads % geometry.kv_heads == 0);
  plan_->shape = shape_of(geometry);
  const AttentionShape& s = plan_->shape;
  float total = 0;
  for (size_t i = 0; i < entries_.size(); i++) {
    const AttentionEntry& e = entries_[i];
    COHORT_CHECK_LE(1, e.count);
    COHORT_CHECK_LE(0, e.start);
    rows_ = std::max(rows_, e.first_row + e.count);
    total += float(s.kv_heads) * cost(s, e.count, e.start + e.count);
    for (int r = 0; r < e.count; r++) plan_->rows.push_back({int32_t(i), r});
  }
  Cutter cutter{*plan_, threads, total / float(8 * threads)};
  const int positions = s.group > 0 ? std::max(1, kItemRows / s.group) : 1;
  for (size_t i = 0; i < entries_.size(); i++)
    for (int q0 = 0; q0 < entries_[i].count; q0 += positions)
      cutter.cut(int(i), entries_[i], q0, std::min(q0 + positions, entries_[i].count));
  plan_->missing = std::make_unique<std::atomic<int>[]>(plan_->merges.size());
  plan_->partials =
      std::make_unique_for_overwrite<float[]>(size_t(cutter.partial_rows) * size_t(s.stride));
  // The last item to start is short.
  std::stable_sort(plan_->items.begin(), plan_->items.end(),
                   [](const AttentionItem& a, const AttentionItem& b) { return a.cost > b.cost; });
}

AttentionBatch::AttentionBatch(const KvGeometry& geometry, std::vector<AttentionEntry> entries,
                               int64_t rows, const cuda::DeviceBatch& device)
    : geometry_(geometry), entries_(std::move(entries)), rows_(rows), device_(&device) {}

AttentionBatch::~AttentionBatch() = default;
AttentionBatch::AttentionBatch(AttentionBatch&&) noexcept = default;

void AttentionBatch::Plan::reset() {
  for (size_t i = 0; i < merges.size(); i++)
    missing[i].store(merges[i].pieces, std::memory_order_relaxed);
  next.store(0, std::memory_order_relaxed);
}

}  // namespace cohort
