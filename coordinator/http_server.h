// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1 on Boost.Beast's parser: asynchronous, few threads, a write queue per connection.
// Everything is bounded: header, body, time to send them, connections, bytes that wait for a slow
// reader.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/http_exchange.h"

namespace cohort {

struct HttpLimits {
  uint32_t header_bytes = 16 << 10;
  uint64_t body_bytes = 32 << 20;
  int connections = 8192;
  Duration receive = std::chrono::seconds(30);  // for a whole request, from its first byte
  Duration idle = std::chrono::seconds(75);     // between requests
  Duration ping = std::chrono::seconds(10);     // silence after which a comment is sent
  // A reader that takes nothing for so long, or lets so much pile up, is cut.
  Duration write_stall = std::chrono::seconds(20);
  size_t write_bytes = 4 << 20;
};

class HttpServer {
 public:
  using Serve = std::function<void(std::shared_ptr<HttpExchange>)>;
  // address: HOST:PORT, port 0 for a free one. serve is called by the io threads and must not
  // block.
  static Result<std::unique_ptr<HttpServer>> start(const std::string& address, int threads,
                                                   const HttpLimits& limits, Serve serve);
  virtual ~HttpServer() = default;
  virtual int port() const = 0;
  // Accepts nobody any more, gives what is queued `flush` to go out, then closes everything and
  // ends the threads.
  virtual void stop(Duration flush) = 0;
  virtual int connections() const = 0;
};

}  // namespace cohort
