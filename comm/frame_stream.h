// SPDX-License-Identifier: Apache-2.0
// Frames over one nonblocking TCP connection. write() may be called by any thread; everything else
// by the thread that polls the connection.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_descriptor.h"
#include "base/status.h"
#include "comm/control.h"

namespace cohort {

// What a rank says first. The leader answers with a hello of its own (rank 0, no secret).
struct Hello {
  std::string secret;
  int rank = 0;
  std::string host;
};
std::string encode_hello(const Hello& hello);
Result<Hello> decode_hello(std::string_view payload);
std::string encode_progress(const Progress& progress);
Result<Progress> decode_progress(std::string_view payload);

inline constexpr int64_t kMaxHelloBytes = 1024;

class FrameStream {
 public:
  // The most that may wait to be sent: one frame of the largest size beside small ones.
  static constexpr int64_t kMaxQueuedBytes = kMaxFrameBytes + (8 << 20);

  explicit FrameStream(FileDescriptor socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }

  // Sends at once what the kernel takes and keeps the rest for flush(). RESOURCE_EXHAUSTED when
  // too much waits already; UNAVAILABLE when the connection is broken.
  Status write(FrameType type, std::string_view payload);
  bool wants_write() const { return queued_.load(std::memory_order_acquire) > 0; }
  Status flush();

  // Takes what has arrived and appends the complete frames. UNAVAILABLE: the peer has closed
  // (frames before that are appended still); INVALID_ARGUMENT: no such frame.
  Status read(int64_t max_payload, std::vector<Frame>& frames);

  int64_t received() const { return received_; }  // bytes so far

  // No more in either direction; the peer sees the connection closed.
  void hang_up();

  // Before it is destroyed: sends what is queued and waits for the peer to close too. Closing with
  // unread input would make the kernel reset the connection, and the peer lose our last frames.
  void close_gently(Deadline deadline);

 private:
  Status flush_locked();
  Status take_frames(int64_t max_payload, std::vector<Frame>& frames);

  FileDescriptor socket_;
  std::string incoming_;
  int64_t received_ = 0;
  std::mutex mutex_;
  std::deque<std::string> outgoing_;
  size_t sent_of_first_ = 0;
  std::atomic<int64_t> queued_{0};
};

}  // namespace cohort
