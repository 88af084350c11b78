// SPDX-License-Identifier: Apache-2.0
// One HTTP request and the way to answer it. Methods other than run() belong to the connection's
// strand: routes are called there, everybody else goes through run(). An exchange may outlive its
// connection; answering then does nothing.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;
  std::string path;     // without the query
  HttpHeaders headers;  // names in lower case
  std::string body;
  // "" if absent
  std::string_view header(std::string_view name) const {
    for (const auto& [key, value] : headers)
      if (key == name) return value;
    return {};
  }
};

class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual const HttpRequest& request() const = 0;
  // Any thread: runs f on the strand.
  virtual void run(std::function<void()> f) = 0;

  // Either one respond(), or start_events(), event()s and end_events().
  virtual void respond(int status, const std::string& content_type, std::string body,
                       const HttpHeaders& extra = {}) = 0;
  // Server-sent events. While they are open a comment is sent whenever nothing else was for a
  // while, so that proxies keep the connection.
  virtual void start_events(const HttpHeaders& extra = {}) = 0;
  virtual void event(std::string_view data) = 0;
  // failed: the connection is closed after it.
  virtual void end_events(bool failed) = 0;
  // Called once if the client leaves, or is cut for reading too slowly, before the answer is
  // complete.
  virtual void on_gone(std::function<void()> f) = 0;
  // Called when nothing was sent for a while although the answer is not complete.
  virtual void on_quiet(std::function<void()> f) = 0;
};

}  // namespace cohort
