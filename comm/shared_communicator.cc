// SPDX-License-Identifier: Apache-2.0
#include "comm/shared_communicator.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "base/cpu.h"
#include "comm/stream_copy.h"

namespace cohort {
namespace {

// A peer usually comes within a few microseconds: spin. Then leave the core to others now and then:
// the peer may need this very core. Then sleep, and look after the peers every few milliseconds.
constexpr Duration kSpin = std::chrono::microseconds(4);
constexpr Duration kYield = std::chrono::milliseconds(1);
constexpr Duration kSleep = std::chrono::milliseconds(10);
constexpr int kLooksPerClock = 32;

// With more members than cores a spinning one keeps the core from the one it waits for.
Duration spin_time(int members) {
  return members <= int(std::thread::hardware_concurrency()) ? kSpin : Duration(0);
}

}  // namespace

SharedCommunicator::SharedCommunicator(GroupInfo info, SharedRegion region,
                                       std::shared_ptr<void> owner,
                                       std::unique_ptr<PeerWatch> watch)
    : RoundCommunicator(std::move(info), SharedRegion::kSlotBytes),
      region_(region),
      owner_(std::move(owner)),
      watch_(std::move(watch)),
      spin_(spin_time(size())),
      incoming_at_(size_t(size())),
      sent_(size_t(size())),
      received_(size_t(size())) {
  static_assert(Ring::kChunks >= kHeldMessages);
  COHORT_CHECK_LE(kHeldBytes, region_.chunk_bytes());
  COHORT_CHECK_EQ(region_.ranks(), size());
  region_.state(rank()).presence.store(uint32_t(Presence::present), std::memory_order_release);
}

SharedCommunicator::~SharedCommunicator() {
  uint32_t present = uint32_t(Presence::present);
  region_.state(rank()).presence.compare_exchange_strong(present, uint32_t(Presence::left));
}

void SharedCommunicator::publish(std::byte* to, const void* from, int64_t bytes) {
  stream_copy(to, from, bytes);
}

void SharedCommunicator::give_up(const Status& why) {
  RankState& state = region_.state(rank());
  if (state.reason_taken.exchange(1) != 0) return;
  const std::string text = why.to_string().substr(0, state.reason.size() - 1);
  std::memcpy(state.reason.data(), text.data(), text.size());
  state.presence.store(uint32_t(Presence::failed), std::memory_order_release);
}

Status SharedCommunicator::exchange(const RoundTag& tag, std::span<const Part>,
                                    std::span<const Part> from) {
  const uint32_t round = ++round_;
  RoundLine& mine = region_.line(rank(), round);
  mine.tag = tag;
  mine.ready.post(round);
  for (int r = 0; r < size(); r++) {
    incoming_at_[size_t(r)] = from[size_t(r)].offset;
    if (r == rank()) continue;
    RoundLine& theirs = region_.line(r, round);
    COHORT_RETURN_IF_ERROR(wait({theirs.ready, round, r, true, "message of a collective"}));
    COHORT_RETURN_IF_ERROR(check_tag(r, tag, theirs.tag));
  }
  return {};
}

Status SharedCommunicator::send_bytes(const std::byte* data, int64_t bytes, int peer) {
  Ring& ring = region_.ring(rank(), peer);
  uint32_t& sent = sent_[size_t(peer)];
  int64_t at = 0;
  do {
    const int64_t n = std::min(region_.chunk_bytes(), bytes - at);
    COHORT_RETURN_IF_ERROR(wait({ring.received, sent + 1 - Ring::kChunks, peer, false, "recv"}));
    region_.chunk(rank(), peer, sent).header = {bytes, at, mark()};
    if (n > 0) std::memcpy(region_.chunk_data(rank(), peer, sent), data + at, size_t(n));
    ring.sent.post(++sent);
    at += n;
  } while (at < bytes);
  return {};
}

Status SharedCommunicator::recv_bytes(std::byte* data, int64_t bytes, int peer) {
  Ring& ring = region_.ring(peer, rank());
  uint32_t& received = received_[size_t(peer)];
  int64_t at = 0;
  do {
    const int64_t n = std::min(region_.chunk_bytes(), bytes - at);
    COHORT_RETURN_IF_ERROR(wait({ring.sent, received + 1, peer, false, "send"}));
    COHORT_RETURN_IF_ERROR(
        check_message(peer, {bytes, at, mark()}, region_.chunk(peer, rank(), received).header));
    if (n > 0) std::memcpy(data + at, region_.chunk_data(peer, rank(), received), size_t(n));
    ring.received.post(++received);
    at += n;
  } while (at < bytes);
  return {};
}

Status SharedCommunicator::wait(const Wait& w) {
  for (int i = 0; i < kLooksPerClock; i++) {
    if (w.signal.reached(w.target)) return {};
    cpu_pause();
  }
  return wait_slowly(w);
}

Status SharedCommunicator::wait_slowly(const Wait& w) {
  const TimePoint start = std::chrono::steady_clock::now();
  for (;;) {
    for (int i = 0; i < kLooksPerClock; i++) {
      if (w.signal.reached(w.target)) return {};
      cpu_pause();
    }
    const Duration waited = std::chrono::steady_clock::now() - start;
    if (waited < spin_) continue;
    if (waited < kYield) {
      std::this_thread::yield();
      continue;
    }
    if (aborted()) return abort_status();
    if (const Status peers = check_peers(w); !peers.ok()) {
      // It may have posted just before it ended.
      return w.signal.reached(w.target) ? Status() : peers;
    }
    if (waited >= timeout()) return timed_out(w);
    w.signal.sleep(w.target, std::min(kSleep, timeout() - waited));
  }
}

bool SharedCommunicator::is_missing(const Wait& w, int peer) const {
  if (!w.round) return peer == w.peer;
  return peer != rank() && !region_.line(peer, w.target).ready.reached(w.target);
}

Status SharedCommunicator::check_peers(const Wait& w) const {
  // A process that ended is the cause, whatever those it left alone say.
  for (int r = 0; r < size(); r++) {
    if (!is_missing(w, r)) continue;
    const auto presence = Presence(region_.state(r).presence.load(std::memory_order_acquire));
    if (presence != Presence::left && watch_ && watch_->gone(r))
      return unavailable(info().peer(r) + " has died");
  }
  for (int r = 0; r < size(); r++) {
    if (!is_missing(w, r)) continue;
    const RankState& state = region_.state(r);
    const auto presence = Presence(state.presence.load(std::memory_order_acquire));
    if (presence == Presence::failed)
      return unavailable(info().peer(r) + " gave up: " + state.reason.data());
    if (presence == Presence::left) return unavailable(info().peer(r) + " has left the group");
  }
  return {};
}

Status SharedCommunicator::timed_out(const Wait& w) const {
  std::string names;
  for (int r = 0; r < size(); r++)
    if (is_missing(w, r)) names += (names.empty() ? "" : ", ") + late_peer(r);
  return deadline_exceeded(
      concat("no ", w.verb, " within ", seconds(timeout()), " s from ", names));
}

}  // namespace cohort
