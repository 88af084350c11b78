// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "coordinator/http_connection.h"

namespace cohort {

namespace asio = boost::asio;

ConnectionExchange::ConnectionExchange(std::weak_ptr<HttpConnection> connection,
                                       asio::any_io_executor strand, HttpRequest request,
                                       bool keep_alive, bool chunked)
    : connection_(std::move(connection)),
      strand_(std::move(strand)),
      request_(std::move(request)),
      keep_alive_(keep_alive),
      chunked_(chunked) {}

void ConnectionExchange::run(std::function<void()> f) {
  asio::post(strand_, [self = shared_from_this(), f = std::move(f)] { f(); });
}

std::string ConnectionExchange::head(int status, const std::string& content_type,
                                     const HttpHeaders& extra) const {
  const auto reason =
      status == 499
          ? boost::beast::string_view("Client Closed Request")
          : boost::beast::http::obsolete_reason(static_cast<boost::beast::http::status>(status));
  std::string out = "HTTP/1.1 " + std::to_string(status) + " " + std::string(reason) +
                    "\r\nContent-Type: " + content_type + "\r\n";
  for (const auto& [key, value] : extra) out += key + ": " + value + "\r\n";
  return out;
}

void ConnectionExchange::respond(int status, const std::string& content_type, std::string body,
                                 const HttpHeaders& extra) {
  const auto connection = open();
  if (!connection) return;
  done_ = true;
  connection->write(head(status, content_type, extra) +
                    "Content-Length: " + std::to_string(body.size()) +
                    (keep_alive_ ? "\r\n\r\n" : "\r\nConnection: close\r\n\r\n") +
                    (request_.method == "HEAD" ? "" : body));
  connection->answered(keep_alive_);
}

void ConnectionExchange::start_events(const HttpHeaders& extra) {
  const auto connection = open();
  if (!connection) return;
  streaming_ = true;
  connection->write(head(200, "text/event-stream; charset=utf-8", extra) +
                    "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n" +
                    (chunked_ ? "Transfer-Encoding: chunked\r\n" : "") +
                    (keep_alive_ && chunked_ ? "\r\n" : "Connection: close\r\n\r\n"));
}

void ConnectionExchange::chunk(HttpConnection& connection, std::string_view bytes) {
  if (!chunked_) return connection.write(bytes);
  std::array<char, 20> size{};
  const int digits = std::snprintf(size.data(), size.size(), "%zx\r\n", bytes.size());
  std::string out(size.data(), static_cast<size_t>(digits));
  out += bytes;
  out += "\r\n";
  connection.write(out);
}

void ConnectionExchange::event(std::string_view data) {
  const auto connection = open();
  if (!connection || !streaming_) return;
  chunk(*connection, "data: " + std::string(data) + "\n\n");
}

void ConnectionExchange::end_events(bool failed) {
  const auto connection = open();
  if (!connection || !streaming_) return;
  done_ = true;
  if (chunked_) connection->write("0\r\n\r\n");
  connection->answered(keep_alive_ && chunked_ && !failed);
}

void ConnectionExchange::on_gone(std::function<void()> f) {
  if (gone_) return f();
  if (!done_) on_gone_ = std::move(f);
}

void ConnectionExchange::connection_gone() {
  gone_ = true;
  const bool incomplete = !done_;
  done_ = true;
  const auto f = std::exchange(on_gone_, nullptr);
  quiet_ = nullptr;
  if (incomplete && f) f();
}

void ConnectionExchange::quiet() {
  const auto connection = open();
  if (!connection) return;
  if (streaming_)
    chunk(*connection, ": ping\n\n");
  else if (const auto f = quiet_)
    f();
}

}  // namespace cohort
