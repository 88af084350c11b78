// SPDX-License-Identifier: Apache-2.0
// The attention work of one step, cut into items for the threads once and used by every layer. How
// it is cut follows subtrees of the split tree and changes no bit (docs/arithmetic.md section 5).
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/kv_layout.h"

namespace cohort {
namespace cuda {
struct DeviceBatch;
}

// Queries at positions start .. start + count - 1 of one sequence, rows first_row .. of the step's
// tensors. blocks: ids of the sequence's KV blocks from position 0 on, at least as many as cover
// start + count positions; borrowed for the life of the batch.
struct AttentionEntry {
  const int32_t* blocks = nullptr;
  int64_t first_row = 0;
  int32_t start = 0;
  int32_t count = 0;
};

class AttentionBatch {
 public:
  AttentionBatch(const KvGeometry& geometry, std::vector<AttentionEntry> entries, int threads);
  // For a GPU: the same entries lie in device memory. `rows`: of the launch, with padding.
  AttentionBatch(const KvGeometry& geometry, std::vector<AttentionEntry> entries, int64_t rows,
                 const cuda::DeviceBatch& device);
  ~AttentionBatch();
  AttentionBatch(AttentionBatch&&) noexcept;

  const KvGeometry& geometry() const { return geometry_; }
  const std::vector<AttentionEntry>& entries() const { return entries_; }
  int64_t rows() const { return rows_; }

  struct Plan;  // kernels only
  Plan& plan() const { return *plan_; }
  const cuda::DeviceBatch& device() const { return *device_; }  // borrowed; kernels/cuda only

 private:
  KvGeometry geometry_;
  std::vector<AttentionEntry> entries_;
  int64_t rows_ = 0;
  std::unique_ptr<Plan> plan_;
  const cuda::DeviceBatch* device_ = nullptr;
};

}  // namespace cohort
