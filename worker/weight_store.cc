// SPDX-License-Identifier: Apache-2.0
#include "worker/weight_store.h"

#include <algorithm>
#include <filesystem>

#include "base/log.h"

namespace cohort {
namespace {

// What a chunk does not use is never touched, so it costs addresses alone.
constexpr size_t kChunkBytes = size_t(64) << 20;

}  // namespace

WeightStore::WeightStore(std::string path, std::string identity, ThreadPool& threads)
    : path_(std::move(path)), identity_(std::move(identity)) {
  auto file = WeightCacheFile::open(path_, identity_);
  Status status = file.status();
  if (file.ok()) {
    auto content = (*file)->read(threads);
    status = content.status();
    if (content.ok()) {
      content_ = std::move(*content);
      cached_ = (*file)->header().parts;
    }
  }
  if (!status.ok() && status.code() != Code::kNotFound)
    log_warning(concat(path_, " is not used and made anew: ", status.message()));
}

PartStore::Place WeightStore::place(std::string_view name, DType dtype, int64_t rows,
                                    int64_t columns) {
  CachedPart part{std::string(name), dtype, rows, columns, 0};
  const size_t size = size_t(packed_bytes(dtype, rows, columns));
  Place place;
  if (next_ < cached_.size()) {
    const CachedPart& cached = cached_[next_++];
    part.offset = cached.offset;
    place.packed = cached == part;
    if (place.packed) place.memory = view_of(content_.data() + cached.offset, size);
  }
  if (place.packed)
    cached_bytes_ += int64_t(size);
  else
    place.memory = view_of(allocate(size), size);
  bytes_ += int64_t(size);
  placed_.push_back(std::move(part));
  data_.push_back(place.memory.data());
  return place;
}

std::byte* WeightStore::allocate(size_t bytes) {
  if (chunks_.empty() || chunks_.back().size() - used_ < bytes) {
    chunks_.emplace_back(std::max(bytes, kChunkBytes));
    used_ = 0;
  }
  std::byte* memory = chunks_.back().data() + used_;
  used_ = std::min(chunks_.back().size(),
                   (used_ + bytes + kCacheAlignment - 1) / kCacheAlignment * kCacheAlignment);
  return memory;
}

void WeightStore::save() const {
  if (path_.empty() || (cached_bytes_ == bytes_ && next_ == cached_.size())) return;
  std::error_code ignored;  // the writer says what is wrong
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
  const Status written = write_weight_cache(path_, identity_, placed_, data_);
  if (!written.ok()) log_warning("packed weights are not kept: " + written.message());
}

}  // namespace cohort
