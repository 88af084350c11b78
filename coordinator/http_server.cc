// SPDX-License-Identifier: Apache-2.0
#include "coordinator/http_server.h"

#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "base/log.h"
#include "coordinator/address.h"
#include "coordinator/http_connection.h"

namespace cohort {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

class BeastServer final : public HttpServer {
 public:
  BeastServer(int threads, const HttpLimits& limits, Serve serve)
      : threads_(threads),
        io_(threads),
        acceptor_(asio::make_strand(io_)),
        retry_(acceptor_.get_executor()) {
    shared_->limits = limits;
    shared_->serve = std::move(serve);
  }
  ~BeastServer() override { stop(Duration(0)); }

  Status listen(const std::string& address) {
    COHORT_ASSIGN_OR_RETURN(const HostPort where, parse_host_port(address));
    error_code error;
    tcp::resolver resolver(io_);
    const auto found =
        resolver.resolve(where.host, std::to_string(where.port), tcp::resolver::passive, error);
    if (error || found.empty())
      return invalid_argument(concat("cannot resolve ", address, ": ", error.message()));
    const tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error)
      return unavailable(concat("cannot listen on ", address, ": ", error.message(),
                                ": choose another address with --http"));
    port_ = acceptor_.local_endpoint().port();
    accept();
    for (int i = 0; i < threads_; ++i) runners_.emplace_back([this] { io_.run(); });
    return {};
  }

  int port() const override { return port_; }
  int connections() const override { return shared_->connections.load(); }

  void stop(Duration flush) override {
    if (runners_.empty()) return;
    asio::post(acceptor_.get_executor(), [this] {
      error_code ignored;
      acceptor_.close(ignored);
      retry_.cancel();
    });
    const Deadline deadline = Deadline::after(flush);
    while (connections() > 0 && !deadline.expired())
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    io_.stop();
    for (std::thread& runner : runners_) runner.join();
    runners_.clear();
  }

 private:
  void accept() {
    acceptor_.async_accept(asio::make_strand(io_), [this](error_code error, tcp::socket socket) {
      if (!acceptor_.is_open()) return;
      if (error) {  // out of descriptors, most likely: they come back
        log_warning("cannot accept a connection: " + error.message());
        retry_.expires_after(std::chrono::milliseconds(100));
        return retry_.async_wait([this](error_code ec) {
          if (!ec && acceptor_.is_open()) accept();
        });
      }
      if (shared_->connections.load() < shared_->limits.connections)
        std::make_shared<HttpConnection>(std::move(socket), shared_)->start();
      accept();
    });
  }

  const int threads_;
  const std::shared_ptr<HttpShared> shared_ = std::make_shared<HttpShared>();
  asio::io_context io_;
  tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  int port_ = 0;
  std::vector<std::thread> runners_;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::start(const std::string& address, int threads,
                                                      const HttpLimits& limits, Serve serve) {
  auto server = std::make_unique<BeastServer>(threads, limits, std::move(serve));
  COHORT_RETURN_IF_ERROR(server->listen(address));
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace cohort
