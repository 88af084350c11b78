// SPDX-License-Identifier: Apache-2.0
// One stack that runs beside its owner's, and what AddressSanitizer and ThreadSanitizer must know
// of it.
#pragma once
#include <cstddef>

namespace emu {
class ThreadFiber {
 public:
  // entry never returns: it calls pause() when it has nothing to do.
  explicit ThreadFiber(void (*entry)());
  // Whatever lives on the stack is dropped, not destroyed.
  ~ThreadFiber();
  ThreadFiber(const ThreadFiber&) = delete;
  ThreadFiber& operator=(const ThreadFiber&) = delete;

  void begin();   // by entry, first of all
  void resume();  // by the owner; returns at the fiber's next pause
  void pause();   // by the fiber; returns at the next resume

 private:
  static constexpr std::size_t kStack = 128 << 10, kGuard = 4096;

  char* memory_ = nullptr;  // kGuard bytes that nobody may touch, then the stack
  void* stack_pointer_ = nullptr;
  void* owner_pointer_ = nullptr;
  // Of the sanitizers; unused without them.
  void* fake_stack_ = nullptr;
  void* owner_fake_stack_ = nullptr;
  const void* owner_bottom_ = nullptr;
  std::size_t owner_size_ = 0;
  void* race_fiber_ = nullptr;
  void* owner_race_fiber_ = nullptr;
};
}  // namespace emu
