// SPDX-License-Identifier: Apache-2.0
// The threads of one rank. run() executes one function on all of them and returns when all are
// done; the caller is thread 0. Between runs the others spin for a few microseconds (the next op of
// the same step usually comes within that), then sleep in the kernel, so that an idle rank costs
// nothing. run() may be called by one thread at a time; it allocates nothing.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace cohort {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }
  // How often run() has set other threads to work. By the thread that calls it.
  int64_t regions() const { return regions_; }
  void run(FunctionRef<void(int thread)> work);

  // Splits [0, items) into one contiguous range per thread. Which thread computes what is never
  // allowed to change a result.
  void parallel_for(int64_t items, FunctionRef<void(int64_t begin, int64_t end)> work);

 private:
  void worker(int thread);

  // Two lines, which some processors fetch together.
  static constexpr size_t kApart = 128;

  const int size_;
  int64_t regions_ = 0;
  std::vector<std::thread> workers_;
  // What the others wait for and then read comes in one line, and what they write does not disturb
  // those that still wait.
  alignas(kApart) std::atomic<uint32_t> generation_{0};
  std::atomic<bool> stop_{false};
  const FunctionRef<void(int)>* work_ = nullptr;  // published by generation_
  alignas(kApart) std::atomic<uint32_t> running_{0};
};

// Spins with pauses, then yields, then sleeps until value differs from old. Returns the new value.
uint32_t spin_wait_change(const std::atomic<uint32_t>& value, uint32_t old);

}  // namespace cohort
