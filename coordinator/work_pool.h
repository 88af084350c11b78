// SPDX-License-Identifier: Apache-2.0
// Threads for work that is too long for the io and core threads: tokenising a prompt takes
// milliseconds. First in, first out; its queue has a capacity.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace cohort {

class WorkPool {
 public:
  WorkPool(int threads, size_t capacity);
  ~WorkPool();  // stop()
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // Any thread. False, and nothing happens, if the queue is full or the pool has stopped.
  bool post(std::function<void()> task);
  // Drops what has not begun.
  void stop();

 private:
  void run();

  const size_t capacity_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;  // guarded by mutex_
  bool stopping_ = false;                    // guarded by mutex_
};

}  // namespace cohort
