// SPDX-License-Identifier: Apache-2.0
// A whole coordinator in one object: service, fronts and session server, started and stopped in
// the right order. The binary and the tests use it alike.
#pragma once
#include <memory>
#include <string>

#include "coordinator/grpc_front.h"
#include "coordinator/http_front.h"
#include "coordinator/http_server.h"
#include "coordinator/request_service.h"
#include "coordinator/session_server.h"

namespace cohort {

struct ServerOptions {
  std::string http = "127.0.0.1:0", grpc = "127.0.0.1:0", session = "127.0.0.1:0";
  int http_threads = 2;
  HttpLimits http_limits;
  ServiceOptions service;
};

class Server {
 public:
  static Result<std::unique_ptr<Server>> start(std::shared_ptr<const ServedModel> model,
                                               const ServerOptions& options,
                                               RequestService::Announce announce);
  ~Server();  // stop(0)

  int http_port() const { return http_->port(); }
  int grpc_port() const { return grpc_->port(); }
  int session_port() const { return sessions_->port(); }
  RequestService& service() { return *service_; }
  // Tells grpc.health.v1 what /ready says. Call it now and then.
  void update_health();
  // Lets nobody in, gives open requests `drain` to end, then ends each of them with an error.
  void stop(Duration drain);

 private:
  Server() = default;

  // In the order in which they may be destroyed from the back.
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<RequestService> service_;
  std::unique_ptr<HttpFront> front_;
  std::unique_ptr<GrpcFront> grpc_;
  std::unique_ptr<SessionServer> sessions_;
  bool stopped_ = false;
};

}  // namespace cohort
