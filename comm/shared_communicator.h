// SPDX-License-Identifier: Apache-2.0
// A communicator over a SharedRegion: the members are threads of one process (local.cc) or
// processes of one host (shm.cc).
#pragma once
#include <memory>
#include <vector>

#include "comm/rounds.h"
#include "comm/shared_region.h"

namespace cohort {

// Sees what the region does not tell: that a peer's process has ended without a word.
class PeerWatch {
 public:
  virtual ~PeerWatch() = default;
  virtual bool gone(int peer) const = 0;
};

class SharedCommunicator : public RoundCommunicator {
 public:
  // owner keeps the region's memory alive. watch may be null: peers that are threads cannot vanish.
  SharedCommunicator(GroupInfo info, SharedRegion region, std::shared_ptr<void> owner,
                     std::unique_ptr<PeerWatch> watch);
  ~SharedCommunicator() override;

 protected:
  std::byte* outgoing() override { return region_.slot(rank(), (round_ + 1) & 1); }
  void publish(std::byte* to, const void* from, int64_t bytes) override;
  Status exchange(const RoundTag& tag, std::span<const Part> to,
                  std::span<const Part> from) override;
  const std::byte* incoming(int peer) const override {
    return region_.slot(peer, round_ & 1) + incoming_at_[size_t(peer)];
  }
  Status send_bytes(const std::byte* data, int64_t bytes, int peer) override;
  Status recv_bytes(std::byte* data, int64_t bytes, int peer) override;
  void give_up(const Status& why) override;

 private:
  // What a wait is for: one signal (peer) or the posts of a round of everybody.
  struct Wait {
    Signal& signal;
    uint32_t target;
    int peer;
    bool round;
    const char* verb;
  };
  Status wait(const Wait& w);
  Status wait_slowly(const Wait& w);
  Status check_peers(const Wait& w) const;
  Status timed_out(const Wait& w) const;
  bool is_missing(const Wait& w, int peer) const;

  const SharedRegion region_;
  const std::shared_ptr<void> owner_;
  const std::unique_ptr<PeerWatch> watch_;
  const Duration spin_;
  uint32_t round_ = 0;
  std::vector<int64_t> incoming_at_;
  std::vector<uint32_t> sent_, received_;  // chunks per peer
};

}  // namespace cohort
