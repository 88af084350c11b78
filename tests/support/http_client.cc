// SPDX-License-Identifier: Apache-2.0
#include "tests/support/http_client.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

namespace cohort {

std::vector<std::string> HttpAnswer::events() const {
  std::vector<std::string> out;
  for (size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
    const size_t end = body.find("\n\n", at);
    out.push_back(body.substr(at + 6, end - at - 6));
    at = end;
  }
  return out;
}

HttpClient::HttpClient(int port) {
  socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
  const timeval limit{20, 0};
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) close();
}

HttpClient::~HttpClient() { close(); }

void HttpClient::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

bool HttpClient::send(const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = ::send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

bool HttpClient::fill() {
  char buffer[16384];
  const ssize_t n = recv(socket_, buffer, sizeof buffer, 0);
  if (n > 0) input_.append(buffer, static_cast<size_t>(n));
  return n > 0;
}

std::string HttpClient::receive_until(const std::string& text) {
  size_t at;
  while ((at = input_.find(text)) == std::string::npos) {
    if (!fill()) return std::exchange(input_, {});
  }
  std::string out = input_.substr(0, at + text.size());
  input_.erase(0, at + text.size());
  return out;
}

HttpAnswer HttpClient::receive() {
  HttpAnswer out;
  out.head = receive_until("\r\n\r\n");
  if (!out.head.starts_with("HTTP/1.1 ") || !out.head.ends_with("\r\n\r\n")) {
    out.closed = true;
    return out;
  }
  out.status = std::atoi(out.head.c_str() + 9);
  if (out.head.find("Transfer-Encoding: chunked") != std::string::npos) {
    for (;;) {
      const std::string size = receive_until("\r\n");
      const size_t bytes = std::strtoul(size.c_str(), nullptr, 16);
      while (input_.size() < bytes + 2)
        if (!fill()) {
          out.closed = true;
          return out;
        }
      out.body += input_.substr(0, bytes);
      input_.erase(0, bytes + 2);
      if (bytes == 0) break;
    }
  } else if (const size_t at = out.head.find("Content-Length: "); at != std::string::npos) {
    const size_t bytes = std::strtoul(out.head.c_str() + at + 16, nullptr, 10);
    while (input_.size() < bytes && fill()) {
    }
    out.body = input_.substr(0, bytes);
    input_.erase(0, bytes);
  } else {
    while (fill()) {
    }
    out.body = std::exchange(input_, {});
    out.closed = true;
  }
  return out;
}

HttpAnswer HttpClient::post(const std::string& path, const std::string& body,
                            const std::string& headers) {
  send("POST " + path + " HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n" + headers +
       "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  return receive();
}

HttpAnswer HttpClient::get(const std::string& path) {
  send("GET " + path + " HTTP/1.1\r\nHost: test\r\n\r\n");
  return receive();
}

}  // namespace cohort
