// SPDX-License-Identifier: Apache-2.0
#include "tools/http_client.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <limits>
#include <nlohmann/json.hpp>

namespace cohort {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using boost::asio::ip::tcp;

constexpr size_t kMaxBody = 64 << 20;

http::request<http::string_body> make_request(const std::string& host, const std::string& path,
                                              const std::string& body) {
  http::request<http::string_body> request{http::verb::post, path, 11};
  request.set(http::field::host, host);
  request.set(http::field::user_agent, "cohort");
  request.set(http::field::connection, "close");
  request.set(http::field::content_type, "application/json");
  request.body() = body;
  request.prepare_payload();
  return request;
}

// One connection. Beast has timeouts on asynchronous calls only, so each call is started and then
// run to its end.
class Connection {
 public:
  explicit Connection(Duration silence) : stream_(io_), silence_(silence) {}

  Status open(const std::string& host, const std::string& port) {
    boost::system::error_code error;
    const auto endpoints = tcp::resolver(io_).resolve(host, port, error);
    if (error) return unavailable("cannot resolve " + host + ":" + port + ": " + error.message());
    return run("is a cluster running there? Cannot connect to " + host + ":" + port,
               [&](auto done) { stream_.async_connect(endpoints, done); });
  }
  Status write(const http::request<http::string_body>& request) {
    return run("cannot send", [&](auto done) { http::async_write(stream_, request, done); });
  }
  template <class Parser>
  Status read_header(Parser& parser) {
    return run("no answer",
               [&](auto done) { http::async_read_header(stream_, buffer_, parser, done); });
  }
  template <class Parser>
  Status read_some(Parser& parser) {
    return run("the stream broke off",
               [&](auto done) { http::async_read_some(stream_, buffer_, parser, done); });
  }

 private:
  template <class Start>
  Status run(const std::string& what, Start start) {
    boost::system::error_code result;
    stream_.expires_after(silence_);
    start([&](boost::system::error_code error, auto&&...) { result = error; });
    io_.restart();
    io_.run();
    if (!result || result == http::error::need_buffer) return {};
    return unavailable(what + ": " + result.message());
  }

  boost::asio::io_context io_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  Duration silence_;
};

// What a reply that is no event stream says, in the server's own words where it has some.
std::string error_message(int status, const std::string& body) {
  const auto json = nlohmann::json::parse(body, nullptr, false);
  if (json.is_object() && json.contains("error") && json["error"].is_object())
    return json["error"].value("message", body);
  return "HTTP " + std::to_string(status) + ": " + body;
}

// The data lines of a growing text, event by event.
class EventSplitter {
 public:
  explicit EventSplitter(const std::function<bool(const std::string&)>& event) : event_(event) {}
  bool push(std::string_view bytes) {
    text_ += bytes;
    for (size_t end; (end = text_.find("\n\n")) != std::string::npos;) {
      const std::string block = text_.substr(0, end);
      text_.erase(0, end + 2);
      if (block.rfind("data: ", 0) == 0 && !event_(block.substr(6))) return false;
    }
    return true;
  }

 private:
  const std::function<bool(const std::string&)>& event_;
  std::string text_;
};

}  // namespace

HttpClient::HttpClient(const std::string& address, Duration silence) : silence_(silence) {
  std::string rest = address.rfind("http://", 0) == 0 ? address.substr(7) : address;
  if (!rest.empty() && rest.back() == '/') rest.pop_back();
  const size_t colon = rest.rfind(':');
  host_ = rest.substr(0, colon);
  port_ = colon == std::string::npos ? "8000" : rest.substr(colon + 1);
}

Status HttpClient::stream(const std::string& path, const std::string& json,
                          const std::function<bool(const std::string&)>& event) const {
  Connection connection(silence_);
  COHORT_RETURN_IF_ERROR(connection.open(host_, port_));
  COHORT_RETURN_IF_ERROR(connection.write(make_request(host_, path, json)));
  http::response_parser<http::buffer_body> parser;
  // Not boost::none: Beast of Boost 1.74 takes that for 0 where the length is known.
  parser.body_limit(std::numeric_limits<uint64_t>::max());
  COHORT_RETURN_IF_ERROR(connection.read_header(parser));
  const bool events = parser.get()[http::field::content_type].starts_with("text/event-stream");
  const int status = int(parser.get().result_int());
  EventSplitter splitter(event);
  std::string other;
  char chunk[4096];
  while (!parser.is_done()) {
    parser.get().body().data = chunk;
    parser.get().body().size = sizeof chunk;
    COHORT_RETURN_IF_ERROR(connection.read_some(parser));
    const std::string_view got(chunk, sizeof chunk - parser.get().body().size);
    if (!events && other.size() + got.size() <= kMaxBody) other += got;
    if (events && !splitter.push(got)) return {};
  }
  if (events) return {};
  return invalid_argument(error_message(status, other));
}

}  // namespace cohort
