// SPDX-License-Identifier: Apache-2.0
#include <poll.h>

#include <atomic>
#include <charconv>
#include <thread>

#include "comm/control.h"
#include "comm/frame_queue.h"
#include "comm/frame_stream.h"
#include "comm/socket.h"

namespace cohort {
namespace {

struct HubAddress {
  std::string host;
  int port = 0;
  std::string secret;
};

Result<HubAddress> parse_address(const std::string& text) {
  const size_t colon = text.find(':'), slash = text.find('/');
  HubAddress address;
  if (colon != std::string::npos && slash != std::string::npos && colon < slash) {
    address.host = text.substr(0, colon);
    address.secret = text.substr(slash + 1);
    const char* end = text.data() + slash;
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, address.port);
    if (error == std::errc() && stop == end && address.port > 0 && address.port < 65536 &&
        !address.host.empty() && address.secret.size() <= 256)
      return address;
  }
  return invalid_argument("control address must be host:port/secret as the leader gives it");
}

class TcpControlLink : public ControlLink {
 public:
  TcpControlLink(FileDescriptor socket, std::string leader, ControlTimes times)
      : stream_(std::move(socket)), leader_(std::move(leader)), times_(times) {}

  ~TcpControlLink() override {
    stop_.store(true);
    wake_.wake();
    if (thread_.joinable()) thread_.join();
    if (!lost_.load()) stream_.close_gently(Deadline::after(std::chrono::milliseconds(500)));
  }

  Status greet(const Hello& hello, Deadline deadline);
  void start() {
    thread_ = std::thread([this] { run(); });
  }

  Status send(FrameType type, const std::string& payload) override {
    if (lost_.load()) return unavailable(leader_ + " is lost");
    COHORT_RETURN_IF_ERROR(stream_.write(type, payload).annotate(leader_));
    if (stream_.wants_write()) wake_.wake();
    return {};
  }

  Result<Frame> next(Duration timeout) override { return queue_.pop(timeout); }

  void set_progress(const Progress& progress) override {
    const std::lock_guard lock(mutex_);
    progress_ = progress;
  }

 private:
  void run();
  Status take(std::vector<Frame>& frames);
  Status send_heartbeat();

  FrameStream stream_;
  const std::string leader_;  // "the leader at host:port", for messages
  const ControlTimes times_;
  FrameQueue queue_;
  WakeUp wake_;
  std::atomic<bool> stop_{false}, lost_{false};
  std::mutex mutex_;
  Progress progress_;
  std::vector<Frame> early_;  // came together with the leader's hello
  std::thread thread_;
};

Status TcpControlLink::greet(const Hello& hello, Deadline deadline) {
  COHORT_RETURN_IF_ERROR(stream_.write(FrameType::hello, encode_hello(hello)).annotate(leader_));
  while (early_.empty()) {
    if (deadline.expired()) return deadline_exceeded(leader_ + " did not answer the hello in time");
    pollfd wait{stream_.fd(), POLLIN, 0};
    ::poll(&wait, 1, 20);
    const Status status = stream_.read(kMaxFrameBytes, early_);
    if (!status.ok() && early_.empty())
      return unavailable(leader_ +
                         " closed the connection (is the secret right?): " + status.message());
  }
  const Frame answer = std::move(early_.front());
  early_.erase(early_.begin());
  if (answer.type == FrameType::error) return failed_precondition(leader_ + ": " + answer.payload);
  if (answer.type != FrameType::hello) return internal_error(leader_ + " answered with no hello");
  return {};
}

Status TcpControlLink::send_heartbeat() {
  std::string payload;
  {
    const std::lock_guard lock(mutex_);
    payload = encode_progress(progress_);
  }
  return stream_.write(FrameType::heartbeat, payload);
}

Status TcpControlLink::take(std::vector<Frame>& frames) {
  for (Frame& frame : frames) {
    if (frame.type == FrameType::heartbeat) continue;
    if (frame.type != FrameType::plan && frame.type != FrameType::shutdown)
      return internal_error("a frame that a leader does not send");
    COHORT_RETURN_IF_ERROR(queue_.push(std::move(frame)));
  }
  frames.clear();
  return {};
}

void TcpControlLink::run() {
  Status status = take(early_);
  TimePoint heard = std::chrono::steady_clock::now(), looked = heard, next_heartbeat = heard;
  while (status.ok() && !stop_.load()) {
    const short events = short(stream_.wants_write() ? POLLIN | POLLOUT : POLLIN);
    pollfd polled[2] = {{stream_.fd(), events, 0}, {wake_.fd(), POLLIN, 0}};
    const Duration most = std::min(times_.heartbeat, times_.lease / 4);
    ::poll(polled, 2, int(std::chrono::ceil<std::chrono::milliseconds>(most).count()));
    const TimePoint now = std::chrono::steady_clock::now();
    // This process itself has been stopped: what the leader sent meanwhile is still to be read.
    if (now - looked > times_.lease / 2) heard = now;
    looked = now;
    if (polled[1].revents) wake_.drain();
    std::vector<Frame> frames;
    if (polled[0].revents & (POLLIN | POLLHUP | POLLERR)) {
      heard = now;
      status = stream_.read(kMaxFrameBytes, frames);
    }
    if (const Status taken = take(frames); status.ok()) status = taken;
    if (status.ok()) status = stream_.flush();
    if (status.ok() && now >= next_heartbeat) {
      status = send_heartbeat();
      next_heartbeat = now + times_.heartbeat;
    }
    if (status.ok() && now - heard > times_.lease)
      status = unavailable(concat("no heartbeat for ", seconds(now - heard), " s"));
  }
  if (status.ok()) return;
  lost_.store(true);
  stream_.hang_up();
  queue_.end(unavailable(leader_ + " is lost: " + status.message()));
}

}  // namespace

Result<std::unique_ptr<ControlLink>> ControlLink::connect(const std::string& address, int rank,
                                                          const std::string& host,
                                                          ControlTimes times, Duration timeout) {
  const Deadline deadline = Deadline::after(timeout);
  COHORT_ASSIGN_OR_RETURN(const HubAddress hub, parse_address(address));
  Result<FileDescriptor> socket = connect_tcp(hub.host, hub.port, deadline);
  if (!socket.ok() && hub.host.starts_with("127."))
    return Status(socket.status().code(),
                  concat(socket.status().message(), " (from host ", host,
                         "; that is a loopback address: for ranks on other hosts the leader must "
                         "listen on an address that they can reach)"));
  if (!socket.ok()) return socket.status().annotate("from host " + host);
  auto link = std::make_unique<TcpControlLink>(
      std::move(*socket), concat("the leader at ", hub.host, ":", hub.port), times);
  COHORT_RETURN_IF_ERROR(link->greet({hub.secret, rank, host}, deadline));
  link->start();
  return std::unique_ptr<ControlLink>(std::move(link));
}

}  // namespace cohort
