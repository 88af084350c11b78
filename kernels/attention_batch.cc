// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_batch.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/attention_plan.h"

namespace cohort {
namespace {

AttentionShape shape_of(const KvGeometry& g) {
  AttentionShape s{};
  s.heads = g.heads;
  s.kv_heads = g.kv_heads;
  s.dim = g.dim;
  s.most_heads = g.most_heads();
  s.dtype = g.dtype;
  s.bf16 = g.bf16_arithmetic;
  s.element = bytes_of(g.dtype, 1);
  s.plane = int64_t(g.plane_bytes());
  s.chunk = int64_t(g.chunk_bytes());
  s.block = int64_t(g.block_bytes());
  s.query_scale = float(1.4426950408889634 / std::sqrt(double(g.dim)));
  s.stride = g.dim + 16;
  return s;
}

}  // namespace

AttentionBatch::AttentionBatch(const KvGeometry& geometry, std::vector<AttentionEntry> entries,
                               int threads)
    : geometry_(geometry), entries_(std::move(entries)), plan_(std::make_unique<Plan>()) {
  COHORT_CHECK_EQ(geometry.dim % 8, 0);
  COHORT_CHECK_LE(geometry.dim, kMaxHeadDim);
  COHORT_CHECK(!geometry.bf16_arithmetic || geometry.dtype == DType::bf16);
  COHORT_CHECK(geometry.consistent());
  plan_->shape = shape_of(geometry);
  for (size_t i = 0; i < entries_.size(); i++) {
    const AttentionEntry& e = entries_[i];
    COHORT_CHECK_LE(1, e.count);
    COHORT_CHECK_LE(0, e.start);
    rows_ = std::max(rows_, e.first_row + e.count);
    for (int r = 0; r < e.count; r++) plan_->rows.push_back({int32_t(i), r});
  }
  cut_items(*plan_, geometry, entries_, threads);
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
