// SPDX-License-Identifier: Apache-2.0
#include "coordinator/server.h"

#include <thread>

#include "base/version.h"

namespace cohort {

Result<std::unique_ptr<Server>> Server::start(std::shared_ptr<const ServedModel> model,
                                              const ServerOptions& options,
                                              RequestService::Announce announce) {
  std::unique_ptr<Server> server(new Server());
  server->service_ =
      std::make_unique<RequestService>(std::move(model), options.service, std::move(announce));
  server->front_ = std::make_unique<HttpFront>(*server->service_, kVersion);
  COHORT_ASSIGN_OR_RETURN(server->sessions_,
                          SessionServer::start(options.session, *server->service_));
  COHORT_ASSIGN_OR_RETURN(server->grpc_, GrpcFront::start(options.grpc, *server->service_));
  HttpLimits limits = options.http_limits;
  limits.body_bytes = options.service.request.body_bytes;
  COHORT_ASSIGN_OR_RETURN(
      server->http_,
      HttpServer::start(options.http, options.http_threads, limits,
                        [front = server->front_.get()](std::shared_ptr<HttpExchange> exchange) {
                          front->serve(std::move(exchange));
                        }));
  return server;
}

Server::~Server() { stop(Duration(0)); }

void Server::update_health() { grpc_->set_ready(service_->view()->ready() > 0); }

void Server::stop(Duration drain) {
  if (std::exchange(stopped_, true)) return;
  // Who asks meanwhile is told so, on new connections too: /ready says 503, requests are refused.
  service_->close_admission();
  if (grpc_) grpc_->set_ready(false);
  const Deadline deadline = Deadline::after(drain);
  while (service_->open_sequences() > 0 && !deadline.expired())
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  service_->stop();
  constexpr Duration kFlush = std::chrono::seconds(1);
  if (grpc_) grpc_->stop(kFlush);
  if (http_) http_->stop(kFlush);
  if (sessions_) sessions_->stop();
}

}  // namespace cohort
