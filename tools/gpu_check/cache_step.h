// SPDX-License-Identifier: Apache-2.0
// A step of attention: sequences with blocks in random order, and the arrays that kernels read.
#pragma once
#include <memory>
#include <vector>

#include "base/device_cuda.h"
#include "kernels/attention_batch.h"
#include "kernels/cuda/batch.h"

namespace cohort::gpu_check {

// Positions [start, start + count) of a sequence are computed; those before are in the cache.
struct SequencePart {
  int start, count;
};

class CacheStep {
 public:
  // padding: rows behind those of the parts.
  CacheStep(CudaDevice& device, const KvGeometry& geometry, const std::vector<SequencePart>& parts,
            int padding);
  CacheStep(const CacheStep&) = delete;

  const AttentionBatch& batch() const { return *batch_; }
  int64_t rows() const { return rows_; }  // with padding
  int64_t cache_bytes() const { return total_blocks_ * int64_t(geometry_.block_bytes()); }
  const std::vector<SequencePart>& parts() const { return parts_; }
  // Where a position's key of a KV head lies in the cache; its value is value_offset() behind.
  int64_t key_at(size_t part, int position, int head) const;
  int64_t value_offset() const { return int64_t(geometry_.plane_bytes()); }

 private:
  const KvGeometry geometry_;
  const std::vector<SequencePart> parts_;
  int64_t rows_ = 0, total_blocks_ = 0;
  std::vector<std::vector<int32_t>> blocks_;
  Buffer arrays_, workspace_;
  cuda::DeviceBatch view_{};
  std::unique_ptr<AttentionBatch> batch_;
};

}  // namespace cohort::gpu_check
