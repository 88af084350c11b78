// SPDX-License-Identifier: Apache-2.0
#include "base/frame_pool.h"

#include <array>
#include <new>
#include <utility>

namespace cohort {
namespace {

// Frames of layers are a few hundred bytes; larger ones are rare and go to the heap.
constexpr size_t kClassBytes = 64, kClasses = 32;

class FreeLists {
 public:
  ~FreeLists() {
    for (Free* list : lists_)
      while (list != nullptr) ::operator delete(std::exchange(list, list->next));
  }

  void* take(size_t size_class) {
    Free* const first = lists_[size_class];
    if (first == nullptr) return ::operator new((size_class + 1) * kClassBytes);
    lists_[size_class] = first->next;
    return first;
  }
  void release(void* frame, size_t size_class) noexcept {
    lists_[size_class] = new (frame) Free{lists_[size_class]};
  }

 private:
  struct Free {
    Free* next;
  };
  std::array<Free*, kClasses> lists_{};
};

thread_local FreeLists free_lists;

size_t size_class_of(size_t bytes) { return (bytes - 1) / kClassBytes; }

}  // namespace

void* take_frame(size_t bytes) {
  const size_t size_class = size_class_of(bytes);
  return size_class < kClasses ? free_lists.take(size_class) : ::operator new(bytes);
}

void release_frame(void* frame, size_t bytes) noexcept {
  const size_t size_class = size_class_of(bytes);
  if (size_class < kClasses)
    free_lists.release(frame, size_class);
  else
    ::operator delete(frame);
}

}  // namespace cohort
