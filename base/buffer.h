// SPDX-License-Identifier: Apache-2.0
// Owned memory. By default zeroed memory of this process in 2 MiB pages where the system gives
// them: kernels walk many rows at once, which exhausts the first-level TLB with 4 KiB pages. A
// device makes Buffers of its own memory (base/device.h), which the host cannot read. Movable, not
// copyable.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cohort {

class Buffer {
 public:
  Buffer() = default;
  // Throws std::bad_alloc where the system has no memory. data() is aligned to 2 MiB for sizes from
  // 2 MiB on, to 64 bytes at least below. Memory is taken when it is first touched, by whom it
  // should be near (a page goes to the NUMA node of the thread that touches it).
  explicit Buffer(size_t bytes);
  // Memory that came from elsewhere and goes back there by release(data, size).
  using Release = void (*)(void* data, size_t size);
  Buffer(void* data, size_t size, Release release)
      : map_(data),
        mapped_(size),
        data_(static_cast<std::byte*>(data)),
        size_(size),
        release_(release) {}
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  std::byte* data() const { return data_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  size_t size() const { return size_; }

 private:
  void* map_ = nullptr;
  size_t mapped_ = 0;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  Release release_ = nullptr;  // null: map_ is a mapping
};

// Somebody else's memory, which must live longer.
Buffer view_of(std::byte* data, size_t size);

}  // namespace cohort
