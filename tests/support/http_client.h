// SPDX-License-Identifier: Apache-2.0
// A blocking HTTP client for tests, on a plain socket, so that tests control every byte. Every wait
// ends after 20 s.
#pragma once
#include <string>
#include <vector>

namespace cohort {

struct HttpAnswer {
  int status = 0;       // 0: the connection ended first
  std::string head;     // status line and headers
  std::string body;     // chunks joined
  bool closed = false;  // the server ended the connection
  // Payloads of server-sent events.
  std::vector<std::string> events() const;
};

class HttpClient {
 public:
  explicit HttpClient(int port);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  bool send(const std::string& bytes);
  HttpAnswer receive();                                // one answer
  std::string receive_until(const std::string& text);  // what came, up to and including text
  HttpAnswer post(const std::string& path, const std::string& body,
                  const std::string& headers = {});
  HttpAnswer get(const std::string& path);
  void close();

 private:
  bool fill();
  int socket_ = -1;
  std::string input_;
};

}  // namespace cohort
