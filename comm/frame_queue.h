// SPDX-License-Identifier: Apache-2.0
// Frames that wait for the owner of an end of the control channel. Thread-safe, bounded.
#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>

#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"
#include "comm/control.h"

namespace cohort {

class FrameQueue {
 public:
  static constexpr size_t kMaxFrames = 4096;
  static constexpr int64_t kMaxBytes = 4 * kMaxFrameBytes;

  Status push(Frame frame) {
    const std::lock_guard lock(mutex_);
    const int64_t bytes = bytes_ + int64_t(frame.payload.size());
    if (frames_.size() >= kMaxFrames || bytes > kMaxBytes)
      return resource_exhausted(concat(frames_.size(), " frames are unread here"));
    bytes_ = bytes;
    frames_.push_back(std::move(frame));
    changed_.notify_one();
    return {};
  }

  // The first one stays; it is what pop() gives once the frames have been read.
  void end(const Status& why) {
    const std::lock_guard lock(mutex_);
    if (!end_.ok()) return;
    end_ = why;
    changed_.notify_all();
  }

  Result<Frame> pop(Duration timeout) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [&] { return !frames_.empty() || !end_.ok(); });
    if (!frames_.empty()) {
      Frame frame = std::move(frames_.front());
      frames_.pop_front();
      bytes_ -= int64_t(frame.payload.size());
      return frame;
    }
    if (!end_.ok()) return end_;
    return deadline_exceeded(concat("no frame within ", seconds(timeout), " s"));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Frame> frames_;
  int64_t bytes_ = 0;
  Status end_;
};

}  // namespace cohort
