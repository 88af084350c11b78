// SPDX-License-Identifier: Apache-2.0
#include "base/threads.h"

#include "base/check.h"
#include "base/cpu.h"

namespace cohort {

uint32_t spin_wait_change(const std::atomic<uint32_t>& value, uint32_t old) {
  // 20 to 100 us of pauses (10 to 50 ns each): longer than any gap between two ops of a step. Then
  // a few yields for machines where the peer waits for this very core, then the kernel.
  constexpr int kSpins = 2000, kYields = 4;
  for (int i = 0; i < kSpins; i++) {
    if (const uint32_t now = value.load(std::memory_order_acquire); now != old) return now;
    cpu_pause();
  }
  for (int i = 0; i < kYields; i++) {
    if (const uint32_t now = value.load(std::memory_order_acquire); now != old) return now;
    std::this_thread::yield();
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

ThreadPool::ThreadPool(int threads) : size_(threads) {
  COHORT_CHECK_GE(threads, 1);
  for (int i = 1; i < threads; i++) workers_.emplace_back([this, i] { worker(i); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& t : workers_) t.join();
}

void ThreadPool::worker(int thread) {
  for (uint32_t seen = 0;;) {
    seen = spin_wait_change(generation_, seen);
    if (stop_.load(std::memory_order_relaxed)) return;
    (*work_)(thread);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

void ThreadPool::run(FunctionRef<void(int)> work) {
  if (size_ == 1) return work(0);
  regions_++;
  work_ = &work;
  running_.store(uint32_t(size_ - 1), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  work(0);
  for (uint32_t left = running_.load(std::memory_order_acquire); left != 0;)
    left = spin_wait_change(running_, left);
}

void ThreadPool::parallel_for(int64_t items, FunctionRef<void(int64_t, int64_t)> work) {
  if (items <= 0) return;
  if (items == 1) return work(0, 1);
  const int64_t parts = size_;
  run([&](int thread) {
    const int64_t begin = items * thread / parts, end = items * (thread + 1) / parts;
    if (begin < end) work(begin, end);
  });
}

}  // namespace cohort
