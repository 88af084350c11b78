// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/cache_step.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace cohort::gpu_check {

CacheStep::CacheStep(CudaDevice& device, const KvGeometry& geometry,
                     const std::vector<SequencePart>& parts, int padding)
    : geometry_(geometry), parts_(parts) {
  int32_t longest = 0;
  for (const SequencePart& p : parts) {
    rows_ += p.count;
    longest = std::max(longest, p.start + p.count);
    total_blocks_ += (p.start + p.count + kBlockTokens - 1) / kBlockTokens;
  }
  std::vector<int32_t> ids(static_cast<size_t>(total_blocks_));
  std::iota(ids.begin(), ids.end(), 0);
  std::mt19937 random(1);
  std::shuffle(ids.begin(), ids.end(), random);
  auto next = ids.begin();
  std::vector<AttentionEntry> entries;
  int64_t row = 0;
  blocks_.reserve(parts.size());
  for (const SequencePart& p : parts) {
    const auto end = next + (p.start + p.count + kBlockTokens - 1) / kBlockTokens;
    blocks_.emplace_back(next, end);
    next = end;
    entries.push_back({blocks_.back().data(), row, p.start, p.count});
    row += p.count;
  }
  rows_ += padding;
  const cuda::BatchArrays layout(geometry, {int32_t(rows_), int32_t(parts.size()), longest});
  arrays_ = device.allocate(layout.bytes());
  workspace_ = device.allocate(layout.workspace_bytes());
  std::vector<std::byte> host(layout.bytes());
  device.upload(arrays_.data(), host.data(), layout.fill(host.data(), entries, rows_));
  view_ = layout.view(arrays_.data(), workspace_.data());
  batch_ = std::make_unique<AttentionBatch>(geometry, entries, rows_, view_);
}

int64_t CacheStep::key_at(size_t part, int position, int head) const {
  const int32_t block = blocks_[part][size_t(position / kBlockTokens)];
  return block * int64_t(geometry_.block_bytes()) + head * int64_t(geometry_.chunk_bytes()) +
         bytes_of(geometry_.dtype, int64_t(position % kBlockTokens) * geometry_.dim);
}

}  // namespace cohort::gpu_check
