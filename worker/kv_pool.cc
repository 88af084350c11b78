// SPDX-License-Identifier: Apache-2.0
#include "worker/kv_pool.h"

#include <algorithm>

namespace cohort {

int64_t affordable_blocks(const KvDemand& demand) {
  // Ids are int32, and plans name blocks one by one.
  constexpr int64_t kMostBlocks = int64_t(1) << 30;
  if (demand.kv_memory > 0) return std::min(kMostBlocks, demand.kv_memory / demand.block_bytes);
  return std::min(
      {kMostBlocks, demand.most_blocks, std::max<int64_t>(demand.share, 0) / demand.block_bytes});
}

}  // namespace cohort
