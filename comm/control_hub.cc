// SPDX-License-Identifier: Apache-2.0
#include "comm/control_hub.h"

#include <algorithm>

#include "base/log.h"

namespace cohort {
namespace {

// Takes the same time whatever the guess, so that the time tells nothing about the secret.
bool same_secret(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); i++) difference |= unsigned(uint8_t(a[i]) ^ uint8_t(b[i]));
  return difference == 0;
}

std::string where(const PeerState& state, TimePoint now) {
  return concat("last heard ", seconds(now - state.last_heartbeat), " s ago, ",
                state.progress.busy ? "busy after step " : "idle after step ", state.progress.step,
                state.progress.where.empty() ? "" : ", at: ", state.progress.where);
}

}  // namespace

TcpControlHub::TcpControlHub(Listener listener, ControlTimes times)
    : secret_(random_hex(16)),
      host_(listener.host),
      address_(concat(listener.host, ":", listener.port, "/", secret_)),
      times_(times),
      listener_(std::move(listener.socket)) {
  own_.connected = true;
  own_.last_progress = now_ = next_heartbeat_ = std::chrono::steady_clock::now();
  thread_ = std::thread([this] { run(); });
}

TcpControlHub::~TcpControlHub() {
  stop_.store(true);
  wake_.wake();
  thread_.join();
  const Deadline deadline = Deadline::after(std::chrono::milliseconds(500));
  for (auto& [rank, peer] : peers_)
    if (peer.stream) peer.stream->close_gently(deadline);
}

std::string TcpControlHub::missing(int ranks) const {
  std::string names, came;
  for (int r = 1; r < ranks; r++) {
    const auto peer = peers_.find(r);
    if (peer == peers_.end())
      names += (names.empty() ? "" : ", ") + std::to_string(r);
    else
      came += concat(came.empty() ? "" : ", ", r, " (host ", peer->second.host, ")");
  }
  return concat("rank ", names, " did not connect; connected: ", came.empty() ? "none" : came);
}

Status TcpControlHub::accept(int ranks, Duration timeout) {
  std::unique_lock lock(mutex_);
  const auto all = [&] {
    if (!loss_.ok()) return true;
    for (int r = 1; r < ranks; r++)
      if (!peers_.count(r)) return false;
    return true;
  };
  const bool done = changed_.wait_for(lock, timeout, all);
  if (!loss_.ok()) return loss_;
  if (!done)
    return deadline_exceeded(concat("after ", seconds(timeout), " s ", missing(ranks),
                                    ". Ranks connect to ", host_, ": can they reach it?"));
  if (!peers_.empty() && peers_.rbegin()->first >= ranks)
    return invalid_argument(concat("rank ", peers_.rbegin()->first,
                                   " connected, but the replica has ", ranks, " ranks"));
  complete_ = true;
  wake_.wake();
  return {};
}

Status TcpControlHub::broadcast(FrameType type, const std::string& payload) {
  if (int64_t(payload.size()) > kMaxFrameBytes)
    return invalid_argument(
        concat("frame of ", payload.size(), " bytes: at most ", kMaxFrameBytes));
  const std::lock_guard lock(mutex_);
  if (type == FrameType::shutdown) shut_down_ = true;
  Status first = loss_;
  bool wake = false;
  for (auto& [rank, peer] : peers_) {
    if (!peer.stream) continue;
    const Status status = peer.stream->write(type, payload);
    if (!status.ok()) {
      peer.broken = status;
      if (first.ok())
        first = unavailable(concat("rank ", rank, " on host ", peer.host, ": ", status.message()));
    }
    wake |= !status.ok() || peer.stream->wants_write();
  }
  if (wake) wake_.wake();
  return shut_down_ ? Status() : first;
}

void TcpControlHub::set_progress(const Progress& progress) {
  const std::lock_guard lock(mutex_);
  note_progress(own_, progress, std::chrono::steady_clock::now());
}

void TcpControlHub::note_progress(PeerState& state, const Progress& progress, TimePoint now) {
  if (!progress.busy || progress.step > state.progress.step) state.last_progress = now;
  state.progress = progress;
}

std::vector<PeerState> TcpControlHub::peers() const {
  const std::lock_guard lock(mutex_);
  std::vector<PeerState> states{own_};
  states[0].last_heartbeat = std::chrono::steady_clock::now();
  for (const auto& [rank, peer] : peers_) states.push_back(peer.state);
  return states;
}

void TcpControlHub::run() {
  while (!stop_.load()) {
    wait_for_events();
    accept_pending();
    read_pending();
    read_peers();
    check_times();
  }
}

void TcpControlHub::wait_for_events() {
  std::vector<pollfd> polled{{wake_.fd(), POLLIN, 0}};
  if (listener_.valid()) polled.push_back({listener_.get(), POLLIN, 0});
  for (const Pending& p : pending_) polled.push_back({p.stream->fd(), POLLIN, 0});
  for (const auto& [rank, peer] : peers_)
    if (peer.stream)
      polled.push_back(
          {peer.stream->fd(), short(peer.stream->wants_write() ? POLLIN | POLLOUT : POLLIN), 0});
  const Duration most = std::min(times_.heartbeat, times_.lease / 4);
  ::poll(polled.data(), polled.size(),
         int(std::chrono::ceil<std::chrono::milliseconds>(most).count()));
  if (polled[0].revents) wake_.drain();
  const TimePoint before = std::exchange(now_, std::chrono::steady_clock::now());
  const std::lock_guard lock(mutex_);
  // This process itself has been stopped: what peers sent meanwhile is still to be read.
  if (now_ - before > times_.lease / 2)
    for (auto& [rank, peer] : peers_) peer.state.last_heartbeat = now_;
  if (complete_) {
    listener_.reset();
    pending_.clear();
  }
}

void TcpControlHub::accept_pending() {
  // A few at a time: a flood of connections must not keep the thread from the ranks.
  for (int i = 0; listener_.valid() && i < 16; i++) {
    FileDescriptor socket = accept_tcp(listener_.get());
    if (!socket.valid()) return;
    if (pending_.size() == kMaxPending) pending_.pop_front();
    pending_.push_back({std::make_unique<FrameStream>(std::move(socket)), now_});
  }
}

void TcpControlHub::read_pending() {
  std::deque<Pending> kept;
  for (Pending& pending : pending_) {
    std::vector<Frame> frames;
    const Status status = pending.stream->read(kMaxHelloBytes, frames);
    if (!frames.empty()) {
      // Strangers must not fill the log either.
      if (!greet(pending, frames[0]) && refused_++ == 0)
        log_warning("control: refused a connection that is not a rank of this replica");
    } else if (status.ok() && now_ - pending.since < times_.lease) {
      kept.push_back(std::move(pending));
    }
  }
  pending_ = std::move(kept);
}

// Lets a rank in, if it knows the secret. A rank sends nothing more before the answer.
bool TcpControlHub::greet(Pending& pending, const Frame& frame) {
  if (frame.type != FrameType::hello) return false;
  const Result<Hello> hello = decode_hello(frame.payload);
  if (!hello.ok() || !same_secret(hello->secret, secret_)) return false;
  const std::lock_guard lock(mutex_);
  if (hello->rank < 1 || peers_.count(hello->rank)) {
    // Whether this last word arrives does not matter.
    (void)pending.stream->write(FrameType::error,
                                concat("rank ", hello->rank, " is here already or is the leader"));
    pending.stream->close_gently(Deadline::after(std::chrono::milliseconds(20)));
    return false;
  }
  Peer peer{.stream = std::move(pending.stream), .host = hello->host, .state = {}, .broken = {}};
  peer.state.rank = hello->rank;
  peer.state.connected = true;
  peer.state.last_heartbeat = peer.state.last_progress = now_;
  peer.broken = peer.stream->write(FrameType::hello, encode_hello({"", 0, host_}));
  peers_.emplace(hello->rank, std::move(peer));
  changed_.notify_all();
  return true;
}

void TcpControlHub::read_peers() {
  for (auto& [rank, peer] : peers_) {
    if (!peer.stream) continue;
    std::vector<Frame> frames;
    const int64_t before = peer.stream->received();
    Status status = peer.stream->read(kMaxFrameBytes, frames);
    const bool heard = peer.stream->received() != before;
    for (Frame& frame : frames) frame.rank = rank;
    const Status taken = take(peer, frames, heard);
    if (status.ok()) status = taken;
    if (status.ok()) status = peer.stream->flush();
    if (!status.ok()) lose(rank, status);
  }
}

Status TcpControlHub::take(Peer& peer, std::vector<Frame>& frames, bool heard) {
  const std::lock_guard lock(mutex_);
  if (!peer.broken.ok()) return peer.broken;
  if (heard) peer.state.last_heartbeat = now_;
  for (Frame& frame : frames) {
    if (frame.type == FrameType::heartbeat) {
      COHORT_ASSIGN_OR_RETURN(const Progress progress, decode_progress(frame.payload));
      note_progress(peer.state, progress, now_);
    } else if (frame.type == FrameType::result || frame.type == FrameType::error ||
               frame.type == FrameType::load) {
      COHORT_RETURN_IF_ERROR(queue_.push(std::move(frame)));
    } else {
      return invalid_argument("a frame that a rank does not send");
    }
  }
  return {};
}

void TcpControlHub::check_times() {
  std::vector<std::pair<int, Status>> lost;
  {
    const std::lock_guard lock(mutex_);
    const bool beat = now_ >= next_heartbeat_;
    if (beat) next_heartbeat_ = now_ + times_.heartbeat;
    for (auto& [rank, peer] : peers_) {
      if (!peer.stream) continue;
      const Duration silent = now_ - peer.state.last_heartbeat;
      Status status;
      if (silent > times_.lease)
        status = unavailable(concat("no heartbeat for ", seconds(silent), " s"));
      else if (beat)
        status = peer.stream->write(FrameType::heartbeat, encode_progress(own_.progress));
      if (!status.ok()) lost.emplace_back(rank, status);
    }
  }
  for (const auto& [rank, status] : lost) lose(rank, status);
}

void TcpControlHub::lose(int rank, const Status& why) {
  const std::lock_guard lock(mutex_);
  Peer& peer = peers_.at(rank);
  peer.stream.reset();
  peer.state.connected = false;
  const Status loss =
      unavailable(concat("rank ", rank, " on host ", peer.host, " is lost: ", why.message(), " (",
                         where(peer.state, now_), ")"));
  if (!shut_down_) {
    if (loss_.ok()) loss_ = loss;
    queue_.end(loss);
  } else if (std::none_of(peers_.begin(), peers_.end(),
                          [](const auto& p) { return bool(p.second.stream); })) {
    queue_.end(unavailable("all ranks have left after the shutdown"));
  }
  changed_.notify_all();
}

Result<std::unique_ptr<ControlHub>> ControlHub::listen(const std::string& host,
                                                       ControlTimes times) {
  COHORT_ASSIGN_OR_RETURN(Listener listener, listen_tcp(host));
  return std::unique_ptr<ControlHub>(std::make_unique<TcpControlHub>(std::move(listener), times));
}

}  // namespace cohort
