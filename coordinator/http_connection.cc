// SPDX-License-Identifier: Apache-2.0
#include "coordinator/http_connection.h"

#include <algorithm>

#include "coordinator/openai_format.h"

namespace cohort {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

namespace {

constexpr auto kTick = std::chrono::milliseconds(500);
constexpr size_t kReadBytes = 64 << 10;
// Of requests sent ahead while one is being answered.
constexpr size_t kMostAhead = 1 << 20;
constexpr auto kLinger = std::chrono::seconds(2);

TimePoint now() { return std::chrono::steady_clock::now(); }

HttpRequest request_of(http::request<http::string_body>&& message) {
  HttpRequest out;
  out.method = std::string(message.method_string());
  const std::string target(message.target());
  out.path = target.substr(0, target.find('?'));
  for (const auto& field : message) {
    std::string name(field.name_string());
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    out.headers.emplace_back(std::move(name), std::string(field.value()));
  }
  out.body = std::move(message.body());
  return out;
}

}  // namespace

HttpConnection::HttpConnection(tcp::socket socket, std::shared_ptr<HttpShared> shared)
    : socket_(std::move(socket)), shared_(std::move(shared)), timer_(socket_.get_executor()) {
  shared_->connections.fetch_add(1);
}

HttpConnection::~HttpConnection() { shared_->connections.fetch_sub(1); }

void HttpConnection::start() {
  asio::dispatch(executor(), [self = shared_from_this()] {
    error_code ignored;
    self->socket_.set_option(tcp::no_delay(true), ignored);
    self->new_parser();
    self->since_ = now();
    self->read();
    self->tick();
  });
}

void HttpConnection::new_parser() {
  parser_.emplace();
  parser_->eager(true);
  parser_->header_limit(shared_->limits.header_bytes);
  parser_->body_limit(shared_->limits.body_bytes);
  receiving_ = false;
  continue_sent_ = false;
}

void HttpConnection::read() {
  if (reading_ || closed_) return;
  reading_ = true;
  socket_.async_read_some(
      input_.prepare(kReadBytes),
      [self = shared_from_this()](error_code error, size_t bytes) { self->on_read(error, bytes); });
}

void HttpConnection::on_read(error_code error, size_t bytes) {
  reading_ = false;
  if (closed_) return;
  if (error) return close();
  input_.commit(bytes);
  if (shut_)
    input_.clear();  // what comes after our last answer is of no interest
  else if (!exchange_)
    parse();
  else if (input_.size() > kMostAhead)
    return close();
  read();
}

void HttpConnection::parse() {
  while (input_.size() > 0 && !exchange_ && !closing_) {
    if (!receiving_) since_ = now();
    receiving_ = true;
    error_code error;
    const size_t used = parser_->put(input_.data(), error);
    input_.consume(used);
    if (error && error != http::error::need_more) return refuse(error);
    if (parser_->is_done()) return serve();
    if (parser_->is_header_done() && !continue_sent_ &&
        boost::beast::iequals(parser_->get()[http::field::expect], "100-continue")) {
      continue_sent_ = true;
      write("HTTP/1.1 100 Continue\r\n\r\n");
    }
    if (error == http::error::need_more || used == 0) return;
  }
}

// A request that is not HTTP, or too large: answered, then the connection ends, because where the
// next request begins is unknown.
void HttpConnection::refuse(error_code error) {
  const int status = error == http::error::header_limit ? 431
                     : error == http::error::body_limit ? 413
                                                        : 400;
  exchange_ = std::make_shared<ConnectionExchange>(weak_from_this(), executor(), HttpRequest{},
                                                   false, false);
  const auto exchange = exchange_;
  exchange->respond(
      status, "application/json",
      error_json(invalid_request("malformed or too large request: " + error.message()), status),
      {});
}

void HttpConnection::serve() {
  receiving_ = false;
  auto message = parser_->release();
  const bool keep_alive = message.keep_alive();
  const bool chunked = message.version() >= 11;
  exchange_ = std::make_shared<ConnectionExchange>(
      weak_from_this(), executor(), request_of(std::move(message)), keep_alive, chunked);
  last_write_ = now();
  shared_->serve(exchange_);
}

void HttpConnection::write(std::string_view bytes) {
  if (closed_ || shut_) return;
  if (output_.empty() && in_flight_.empty()) write_moved_ = now();
  output_ += bytes;
  last_write_ = now();
  if (output_.size() > shared_->limits.write_bytes) return close();
  flush();
}

// One write at a time; what comes meanwhile goes out together with the next.
void HttpConnection::flush() {
  if (!in_flight_.empty() || output_.empty() || closed_) return;
  in_flight_.swap(output_);
  in_flight_sent_ = 0;
  send_some();
}

// Piece by piece, to see that a slow reader takes something.
void HttpConnection::send_some() {
  socket_.async_write_some(asio::buffer(in_flight_) + in_flight_sent_,
                           [self = shared_from_this()](error_code error, size_t bytes) {
                             self->on_written(error, bytes);
                           });
}

void HttpConnection::on_written(error_code error, size_t bytes) {
  if (closed_) return;
  if (error) return close();
  write_moved_ = now();
  in_flight_sent_ += bytes;
  if (in_flight_sent_ < in_flight_.size()) return send_some();
  in_flight_.clear();
  if (!output_.empty()) return flush();
  all_written();
}

void HttpConnection::all_written() {
  if (!closing_) return;
  // The peer may still be sending; closing now could destroy what it has not read yet.
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  shut_ = true;
  since_ = now();
}

void HttpConnection::answered(bool keep_alive) {
  exchange_.reset();
  since_ = now();
  if (!keep_alive) {
    closing_ = true;
    if (in_flight_.empty()) all_written();
    return;
  }
  new_parser();
  // Not from here: the caller may be in the middle of parse().
  asio::post(executor(), [self = shared_from_this()] {
    if (!self->exchange_ && !self->closed_) self->parse();
  });
}

void HttpConnection::tick() {
  if (closed_) return;
  const TimePoint t = now();
  const HttpLimits& limits = shared_->limits;
  const bool stalled =
      (!in_flight_.empty() || !output_.empty()) && t - write_moved_ > limits.write_stall;
  const bool overdue = shut_        ? t - since_ > kLinger
                       : exchange_  ? false
                       : receiving_ ? t - since_ > limits.receive
                                    : t - since_ > limits.idle;
  if (stalled || overdue) return close();
  if (exchange_ && t - last_write_ > limits.ping) {
    last_write_ = t;
    const auto exchange = exchange_;
    exchange->quiet();
  }
  timer_.expires_after(kTick);
  timer_.async_wait([self = shared_from_this()](error_code error) {
    if (!error) self->tick();
  });
}

void HttpConnection::close() {
  if (closed_) return;
  closed_ = true;
  error_code ignored;
  socket_.close(ignored);
  timer_.cancel();
  if (const auto exchange = std::exchange(exchange_, nullptr)) exchange->connection_gone();
}

}  // namespace cohort
