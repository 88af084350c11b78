// SPDX-License-Identifier: Apache-2.0
#include "worker/kv_pool.h"

#include <unistd.h>

#include <algorithm>

namespace cohort {

int64_t affordable_blocks(const KvDemand& demand) {
  // Ids are int32, and plans name blocks one by one.
  constexpr int64_t kMostBlocks = int64_t(1) << 30;
  if (demand.kv_memory > 0) return std::min(kMostBlocks, demand.kv_memory / demand.block_bytes);
  const int64_t share = demand.host_memory / 4 / std::max(demand.ranks_on_host, 1);
  return std::min({kMostBlocks, demand.most_blocks, share / demand.block_bytes});
}

int64_t host_memory_bytes() {
  return int64_t(sysconf(_SC_PHYS_PAGES)) * int64_t(sysconf(_SC_PAGESIZE));
}

}  // namespace cohort
