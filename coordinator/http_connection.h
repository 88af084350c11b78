// SPDX-License-Identifier: Apache-2.0
// One connection of the HTTP server. All of it runs on the strand of its socket. It reads all the
// time, also while a request is being answered: that is how it learns that the client has left.
// Private to http_server.cc.
#pragma once
// boost/asio/awaitable.hpp of 1.74 uses std::exchange without including it.
#include <utility>

#include <boost/asio.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <memory>
#include <optional>
#include <string>

#include "coordinator/http_server.h"

namespace cohort {

using boost::asio::ip::tcp;

// What connections share; outlives them.
struct HttpShared {
  HttpLimits limits;
  HttpServer::Serve serve;
  std::atomic<int> connections{0};
};

class ConnectionExchange;

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(tcp::socket socket, std::shared_ptr<HttpShared> shared);
  ~HttpConnection();
  void start();

 private:
  friend class ConnectionExchange;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  void new_parser();
  void read();
  void on_read(boost::system::error_code error, size_t bytes);
  void parse();
  void refuse(boost::system::error_code error);
  void serve();
  void write(std::string_view bytes);
  void flush();
  void send_some();
  void on_written(boost::system::error_code error, size_t bytes);
  void all_written();
  void answered(bool keep_alive);
  void tick();
  void close();
  boost::asio::any_io_executor executor() { return socket_.get_executor(); }

  tcp::socket socket_;
  const std::shared_ptr<HttpShared> shared_;
  boost::asio::steady_timer timer_;
  boost::beast::flat_buffer input_;
  std::optional<Parser> parser_;
  std::shared_ptr<ConnectionExchange> exchange_;  // while a request is being answered
  std::string output_, in_flight_;                // waiting, and being written
  size_t in_flight_sent_ = 0;
  bool receiving_ = false;  // the first byte of a request has come
  bool closing_ = false;    // after what is queued, no more requests
  bool shut_ = false;       // our direction is shut, waiting for the peer's end
  bool closed_ = false;
  bool reading_ = false;
  bool continue_sent_ = false;
  TimePoint since_{};        // of the current phase: idle, receiving or shut
  TimePoint write_moved_{};  // the socket last took something
  TimePoint last_write_{};
};

class ConnectionExchange : public HttpExchange,
                           public std::enable_shared_from_this<ConnectionExchange> {
 public:
  ConnectionExchange(std::weak_ptr<HttpConnection> connection, boost::asio::any_io_executor strand,
                     HttpRequest request, bool keep_alive, bool chunked);
  const HttpRequest& request() const override { return request_; }
  void run(std::function<void()> f) override;
  void respond(int status, const std::string& content_type, std::string body,
               const HttpHeaders& extra) override;
  void start_events(const HttpHeaders& extra) override;
  void event(std::string_view data) override;
  void end_events(bool failed) override;
  void on_gone(std::function<void()> f) override;
  void on_quiet(std::function<void()> f) override { quiet_ = std::move(f); }

  // Of the connection.
  void connection_gone();
  void quiet();

 private:
  std::shared_ptr<HttpConnection> open() const { return done_ ? nullptr : connection_.lock(); }
  std::string head(int status, const std::string& content_type, const HttpHeaders& extra) const;
  void chunk(HttpConnection& connection, std::string_view bytes);

  const std::weak_ptr<HttpConnection> connection_;
  const boost::asio::any_io_executor strand_;
  const HttpRequest request_;
  const bool keep_alive_;
  const bool chunked_;
  bool streaming_ = false;
  bool done_ = false;
  bool gone_ = false;
  std::function<void()> on_gone_, quiet_;
};

}  // namespace cohort
