// SPDX-License-Identifier: Apache-2.0
#include "base/buffer.h"

#include <sys/mman.h>

#include <new>
#include <utility>

namespace cohort {
namespace {

constexpr size_t kHugePage = size_t(2) << 20;
constexpr size_t kPage = 4096;

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

}  // namespace

Buffer::Buffer(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  const bool huge = bytes >= kHugePage;
  mapped_ = round_up(bytes, kPage) + (huge ? kHugePage : 0);
  map_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map_ == MAP_FAILED) {
    map_ = nullptr;
    throw std::bad_alloc();
  }
  data_ = static_cast<std::byte*>(map_);
  if (!huge) return;
  data_ = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(map_), kHugePage));
  // Whole pages alone: the rest of a last one would be memory that nobody uses. Advice: where it is
  // refused the memory is merely slower.
  (void)madvise(data_, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
}

Buffer::~Buffer() {
  if (map_ == nullptr) return;
  if (release_ != nullptr)
    release_(map_, mapped_);
  else
    munmap(map_, mapped_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : map_(std::exchange(other.map_, nullptr)),
      mapped_(std::exchange(other.mapped_, 0)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      release_(std::exchange(other.release_, nullptr)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(map_, other.map_);
  std::swap(mapped_, other.mapped_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(release_, other.release_);
  return *this;
}

Buffer view_of(std::byte* data, size_t size) {
  return Buffer(data, size, [](void*, size_t) {});
}

}  // namespace cohort
