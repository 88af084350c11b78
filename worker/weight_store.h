// SPDX-License-Identifier: Apache-2.0
// The memory of a rank's weights: packed parts one behind the other in huge pages, which no matrix
// alone might fill. Filled from a cache file where there is a good one, else by whoever packs.
// Outlives the matrices that were placed in it. One thread at a time.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/stream.h"
#include "kernels/matrix.h"
#include "worker/weight_cache.h"

namespace cohort {

class WeightStore final : public PartStore {
 public:
  // A store of memory alone.
  WeightStore() = default;
  // path: of the cache file; identity: what it must have been made from. Whatever is wrong with it
  // is logged, and the store begins empty.
  WeightStore(std::string path, std::string identity, ThreadPool& threads);

  // Parts come in the order of the file, or are taken to be others.
  Place place(std::string_view name, DType dtype, int64_t rows, int64_t columns) override;

  int64_t bytes() const { return bytes_; }
  int64_t cached_bytes() const { return cached_bytes_; }
  // Writes the cache file if it does not hold exactly what was placed. A failure is logged: the
  // file is wanted, not needed.
  void save() const;

 private:
  std::byte* allocate(size_t bytes);

  std::string path_, identity_;
  std::vector<CachedPart> cached_;  // of content_
  Buffer content_;
  size_t next_ = 0;  // of cached_
  std::vector<Buffer> chunks_;
  size_t used_ = 0;  // of the last chunk
  std::vector<CachedPart> placed_;
  std::vector<const std::byte*> data_;  // of placed_
  int64_t bytes_ = 0, cached_bytes_ = 0;
};

}  // namespace cohort
