// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_emulation/lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace emu {
namespace {
// Whose address tells threads apart.
thread_local char self = 0;

void futex(const std::atomic<std::uint32_t>& word, int op, std::uint32_t value,
           const timespec* limit) {
  syscall(SYS_futex, &word, op | FUTEX_PRIVATE_FLAG, value, limit, nullptr, 0);
}
}  // namespace

void Lock::lock() {
  if (owner_ == &self) {
    ++depth_;
    return;
  }
  std::uint32_t free = 0;
  if (!word_.compare_exchange_strong(free, 1))
    while (word_.exchange(2) != 0) futex(word_, FUTEX_WAIT, 2, nullptr);
  owner_ = &self;
  depth_ = 1;
}

void Lock::unlock() {
  if (--depth_) return;
  owner_ = nullptr;
  if (word_.exchange(0) == 2) futex(word_, FUTEX_WAKE, 1, nullptr);
}

int Lock::release() {
  const int depth = depth_;
  depth_ = 1;
  unlock();
  return depth;
}

void Lock::reclaim(int depth) {
  lock();
  depth_ = depth;
}

void Version::bump() {
  ++word_;
  futex(word_, FUTEX_WAKE, INT_MAX, nullptr);
}

void Version::sleep(std::uint32_t seen, std::chrono::microseconds limit) const {
  const timespec t{limit.count() / 1000000, limit.count() % 1000000 * 1000};
  if (word_ == seen) futex(word_, FUTEX_WAIT, seen, &t);
}

Version& version() {
  static Version v;
  return v;
}
}  // namespace emu
