// SPDX-License-Identifier: Apache-2.0
#include "comm/socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "base/check.h"

namespace cohort {
namespace {

Status failed(const std::string& what) { return unavailable(what + ": " + std::strerror(errno)); }

Result<sockaddr_in> resolve(const std::string& host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(uint16_t(port));
  if (host.empty()) return address;  // all interfaces
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  if (const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0)
    return not_found("host '" + host + "': " + ::gai_strerror(error) +
                     "; give a name or IPv4 address that this host can resolve");
  address.sin_addr = reinterpret_cast<const sockaddr_in*>(found->ai_addr)->sin_addr;
  ::freeaddrinfo(found);
  return address;
}

std::string to_text(const in_addr& address) {
  char text[INET_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET, &address, text, sizeof text);
  return text;
}

std::string first_outer_address() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return "127.0.0.1";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  for (const ifaddrs* i = list; i; i = i->ifa_next)
    if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && (i->ifa_flags & IFF_UP) &&
        !(i->ifa_flags & IFF_LOOPBACK))
      return to_text(reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr);
  return "127.0.0.1";
}

void set_no_delay(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// One attempt; an invalid descriptor with errno set on failure.
FileDescriptor try_connect(const sockaddr_in& address, Deadline deadline) {
  FileDescriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return fd;
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno != EINPROGRESS) return {};
    pollfd wait{fd.get(), POLLOUT, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
    if (::poll(&wait, 1, int(left)) <= 0) {
      errno = ETIMEDOUT;
      return {};
    }
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
      errno = error;
      return {};
    }
  }
  set_no_delay(fd.get());
  return fd;
}

}  // namespace

Result<Listener> listen_tcp(const std::string& host) {
  COHORT_ASSIGN_OR_RETURN(sockaddr_in address, resolve(host, 0));
  Listener listener;
  listener.socket =
      FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener.socket.valid()) return failed("socket");
  socklen_t size = sizeof address;
  sockaddr* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener.socket.get(), generic, size) != 0)
    return failed("cannot listen on '" + host + "' (is it an address of this host?)");
  if (::listen(listener.socket.get(), 128) != 0) return failed("listen");
  if (::getsockname(listener.socket.get(), generic, &size) != 0) return failed("getsockname");
  listener.host = host.empty() ? first_outer_address() : to_text(address.sin_addr);
  listener.port = ntohs(address.sin_port);
  return listener;
}

Result<FileDescriptor> connect_tcp(const std::string& host, int port, Deadline deadline) {
  COHORT_ASSIGN_OR_RETURN(const sockaddr_in address, resolve(host, port));
  for (;;) {
    FileDescriptor fd = try_connect(address, deadline);
    if (fd.valid()) return fd;
    const int error = errno;
    if (deadline.left() < std::chrono::milliseconds(20))
      return deadline_exceeded(
          concat("cannot connect to ", host, ":", port, ": ", std::strerror(error)));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

FileDescriptor accept_tcp(int listener) {
  FileDescriptor fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd.valid()) set_no_delay(fd.get());
  return fd;
}

WakeUp::WakeUp() : event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  COHORT_CHECK(event_.valid());
}

void WakeUp::wake() {
  const uint64_t one = 1;
  // It fails only when the counter is full: then the poller is about to wake anyway.
  [[maybe_unused]] const ssize_t n = ::write(event_.get(), &one, sizeof one);
}

void WakeUp::drain() {
  uint64_t count;
  [[maybe_unused]] const ssize_t n = ::read(event_.get(), &count, sizeof count);
}

std::string random_hex(int bytes) {
  std::vector<unsigned char> random(static_cast<size_t>(bytes));
  COHORT_CHECK_EQ(::getrandom(random.data(), random.size(), 0), ssize_t(bytes));
  std::string text;
  for (unsigned char byte : random) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace cohort
