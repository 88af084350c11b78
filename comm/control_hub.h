// SPDX-License-Identifier: Apache-2.0
// The leader's end of the control channel over TCP. One thread polls the listener and all
// connections; mutex_ guards what it shares with callers. Connections whose hello has not come yet
// ("pending") are bounded in number and in time, so strangers cannot disturb.
#pragma once
#include <poll.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/control.h"
#include "comm/frame_queue.h"
#include "comm/frame_stream.h"
#include "comm/socket.h"

namespace cohort {

class TcpControlHub : public ControlHub {
 public:
  static constexpr size_t kMaxPending = 64;

  TcpControlHub(Listener listener, ControlTimes times);
  ~TcpControlHub() override;

  const std::string& address() const override { return address_; }
  Status accept(int ranks, Duration timeout) override;
  Status broadcast(FrameType type, const std::string& payload) override;
  Result<Frame> next(Duration timeout) override { return queue_.pop(timeout); }
  void set_progress(const Progress& progress) override;
  std::vector<PeerState> peers() const override;

 private:
  struct Peer {
    std::unique_ptr<FrameStream> stream;  // null: gone. Replaced by the thread under mutex_ only
    std::string host;
    PeerState state;
    Status broken;  // a write failed: the thread drops the peer
  };
  struct Pending {
    std::unique_ptr<FrameStream> stream;
    TimePoint since;
  };

  void run();
  void wait_for_events();
  void accept_pending();
  void read_pending();
  bool greet(Pending& pending, const Frame& frame);
  void read_peers();
  Status take(Peer& peer, std::vector<Frame>& frames, bool heard);
  void check_times();
  void note_progress(PeerState& state, const Progress& progress, TimePoint now);
  void lose(int rank, const Status& why);
  std::string missing(int ranks) const;

  const std::string secret_;
  const std::string host_;
  const std::string address_;
  const ControlTimes times_;
  FrameQueue queue_;
  WakeUp wake_;
  std::atomic<bool> stop_{false};

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // a peer came or went
  std::map<int, Peer> peers_;        // by rank, from 1; entries stay when the peer is gone
  PeerState own_;
  Status loss_;             // the first
  bool shut_down_ = false;  // told everyone: from then on a closed connection is no loss
  bool complete_ = false;   // all ranks came: nobody else is let in

  // Of the thread alone.
  FileDescriptor listener_;
  std::deque<Pending> pending_;
  int64_t refused_ = 0;
  TimePoint now_{}, next_heartbeat_{};

  std::thread thread_;
};

}  // namespace cohort
