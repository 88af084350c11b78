// SPDX-License-Identifier: Apache-2.0
#include "comm/frame_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace cohort {
namespace {

constexpr size_t kHeaderBytes = 8;
constexpr size_t kReadBytes = 64 << 10;
constexpr size_t kMaxTextBytes = 512;

template <class T>
void append(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); i++) out.push_back(char(value >> (8 * i) & 0xff));
}

template <class T>
T little_endian(const char* bytes) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); i++) value |= T(T(uint8_t(bytes[i])) << (8 * i));
  return value;
}

Status broken(const char* what) {
  return unavailable(concat("connection broken: ", what, ": ", std::strerror(errno)));
}

}  // namespace

std::string encode_hello(const Hello& hello) {
  std::string out;
  append(out, uint32_t(hello.rank));
  append(out, uint32_t(hello.secret.size()));
  return out + hello.secret + hello.host.substr(0, kMaxTextBytes);
}

Result<Hello> decode_hello(std::string_view payload) {
  if (payload.size() < 8) return invalid_argument("hello too short");
  const uint32_t rank = little_endian<uint32_t>(payload.data());
  const uint32_t secret = little_endian<uint32_t>(payload.data() + 4);
  if (rank > 65535) return invalid_argument("hello of no valid rank");
  if (secret > payload.size() - 8 || payload.size() - 8 - secret > kMaxTextBytes)
    return invalid_argument("hello with lengths that do not fit");
  return Hello{std::string(payload.substr(8, secret)), int(rank),
               std::string(payload.substr(8 + secret))};
}

std::string encode_progress(const Progress& progress) {
  std::string out;
  append(out, progress.step);
  append(out, uint8_t(progress.busy));
  const WorkTotals& work = progress.work;
  for (const double seconds : {work.compute_seconds, work.communication_seconds,
                               work.hidden_communication_seconds, work.idle_seconds})
    append(out, std::bit_cast<uint64_t>(seconds));
  append(out, work.bytes_sent);
  return out + progress.where.substr(0, kMaxTextBytes);
}

Result<Progress> decode_progress(std::string_view payload) {
  constexpr size_t kFixed = 9 + 5 * 8;
  if (payload.size() < kFixed || payload.size() > kFixed + kMaxTextBytes)
    return invalid_argument("heartbeat of no valid size");
  const auto number = [&](size_t i) { return little_endian<uint64_t>(payload.data() + 9 + 8 * i); };
  const auto seconds = [&](size_t i) { return std::bit_cast<double>(number(i)); };
  return Progress{little_endian<uint64_t>(payload.data()),
                  payload[8] != 0,
                  std::string(payload.substr(kFixed)),
                  {seconds(0), seconds(1), seconds(2), seconds(3), number(4)}};
}

Status FrameStream::write(FrameType type, std::string_view payload) {
  if (int64_t(payload.size()) > kMaxFrameBytes)
    return invalid_argument(
        concat("frame of ", payload.size(), " bytes: at most ", kMaxFrameBytes));
  std::string frame;
  frame.reserve(kHeaderBytes + payload.size());
  append(frame, uint32_t(payload.size()));
  append(frame, uint32_t(type));
  frame.append(payload);
  const std::lock_guard lock(mutex_);
  const int64_t after = queued_.load(std::memory_order_relaxed) + int64_t(frame.size());
  if (after > kMaxQueuedBytes)
    return resource_exhausted(concat(after, " bytes wait to be sent: the peer does not read"));
  outgoing_.push_back(std::move(frame));
  queued_.store(after, std::memory_order_release);
  return flush_locked();
}

Status FrameStream::flush() {
  const std::lock_guard lock(mutex_);
  return flush_locked();
}

Status FrameStream::flush_locked() {
  while (!outgoing_.empty()) {
    const std::string& first = outgoing_.front();
    const ssize_t n = ::send(fd(), first.data() + sent_of_first_, first.size() - sent_of_first_,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
      return broken("send");
    }
    sent_of_first_ += size_t(n);
    queued_.fetch_sub(n, std::memory_order_acq_rel);
    if (sent_of_first_ == first.size()) {
      outgoing_.pop_front();
      sent_of_first_ = 0;
    }
  }
  return {};
}

Status FrameStream::read(int64_t max_payload, std::vector<Frame>& frames) {
  std::array<char, kReadBytes> buffer;
  // Bounded, so that one busy peer does not keep the thread from the others.
  for (int i = 0; i < 64; i++) {
    const ssize_t n = ::recv(fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
      return broken("recv");
    }
    if (n == 0) return unavailable("connection closed");
    received_ += n;
    incoming_.append(buffer.data(), size_t(n));
    COHORT_RETURN_IF_ERROR(take_frames(max_payload, frames));
  }
  return {};
}

void FrameStream::hang_up() { ::shutdown(fd(), SHUT_RDWR); }

void FrameStream::close_gently(Deadline deadline) {
  bool sending = true;
  std::array<char, 4096> unread;
  while (!deadline.expired()) {
    if (sending && !flush().ok()) return;
    if (sending && !wants_write()) {
      ::shutdown(fd(), SHUT_WR);
      sending = false;
    }
    pollfd wait{fd(), short(sending ? POLLIN | POLLOUT : POLLIN), 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
    if (::poll(&wait, 1, int(left)) <= 0) return;
    const ssize_t n = ::recv(fd(), unread.data(), unread.size(), MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return;
  }
}

Status FrameStream::take_frames(int64_t max_payload, std::vector<Frame>& frames) {
  size_t at = 0;
  while (incoming_.size() - at >= kHeaderBytes) {
    const uint32_t length = little_endian<uint32_t>(incoming_.data() + at);
    const uint32_t type = little_endian<uint32_t>(incoming_.data() + at + 4);
    if (length > max_payload || type < uint32_t(FrameType::hello) ||
        type > uint32_t(FrameType::load))
      return invalid_argument(
          concat("no frame: type ", type, ", ", length, " bytes (at most ", max_payload, ")"));
    if (incoming_.size() - at - kHeaderBytes < length) break;
    frames.push_back({0, FrameType(type), incoming_.substr(at + kHeaderBytes, length)});
    at += kHeaderBytes + length;
  }
  incoming_.erase(0, at);
  return {};
}

}  // namespace cohort
