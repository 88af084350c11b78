// SPDX-License-Identifier: Apache-2.0
// A recursive lock, and a count to sleep on, that ThreadSanitizer does not know: to it, the
// emulation's own locking must not order what host threads and streams do.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

namespace emu {
class Lock {
 public:
  void lock();
  void unlock();
  int release();  // gives it up however often it is held; the count goes back to reclaim
  void reclaim(int depth);

 private:
  std::atomic<std::uint32_t> word_{0};  // 0 free, 1 held, 2 held and waited for
  std::atomic<const void*> owner_{nullptr};
  int depth_ = 0;
};

// Counts changes of the emulation's state.
class Version {
 public:
  std::uint32_t now() const { return word_.load(); }
  void bump();
  // Returns once the count is not `seen` any more, or after `limit`.
  void sleep(std::uint32_t seen, std::chrono::microseconds limit) const;

 private:
  std::atomic<std::uint32_t> word_{0};
};
Version& version();
}  // namespace emu
