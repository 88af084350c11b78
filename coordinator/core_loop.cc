// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_loop.h"

#include <utility>

namespace cohort {

CoreLoop::CoreLoop(std::function<void()> round, Duration tick)
    : round_(std::move(round)), tick_(tick) {}

CoreLoop::~CoreLoop() { stop(); }

void CoreLoop::start() {
  thread_ = std::thread([this] { run(); });
}

void CoreLoop::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void CoreLoop::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void CoreLoop::run() {
  std::vector<std::function<void()>> batch;
  for (bool stopping = false; !stopping;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, tick_, [&] { return stopping_ || !tasks_.empty(); });
      batch.swap(tasks_);
      stopping = stopping_;
    }
    for (auto& task : batch) task();
    batch.clear();
    round_();
  }
}

}  // namespace cohort
