// SPDX-License-Identifier: Apache-2.0
// The OpenAI HTTP API and the operators' pages, on top of the request service (table in
// docs/wire.md). Stateless but for its references; serve() may be called by several threads.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "coordinator/http_exchange.h"
#include "coordinator/openai_parse.h"
#include "coordinator/request_service.h"

namespace cohort {

class HttpFront {
 public:
  // version: what /version says. service must outlive all exchanges.
  HttpFront(RequestService& service, std::string version);
  void serve(std::shared_ptr<HttpExchange> exchange) const;

 private:
  using Exchange = std::shared_ptr<HttpExchange>;
  using Route = std::function<void(const Exchange&)>;
  void add(const char* method, const char* path, void (HttpFront::*route)(const Exchange&) const);
  const Route* find(const HttpRequest& request, std::string* allowed) const;

  void completions(const Exchange& exchange) const;
  void chat_completions(const Exchange& exchange) const;
  void generate(const Exchange& exchange, bool chat) const;
  void models(const Exchange& exchange) const;
  void model(const Exchange& exchange) const;
  void tokenize(const Exchange& exchange) const;
  void detokenize(const Exchange& exchange) const;
  void health(const Exchange& exchange) const;
  void ready(const Exchange& exchange) const;
  void metrics(const Exchange& exchange) const;
  void version(const Exchange& exchange) const;
  void replicas(const Exchange& exchange) const;
  void drain(const Exchange& exchange) const;
  ParseTarget target() const;

  RequestService& service_;
  const std::string version_;
  std::map<std::string, std::map<std::string, Route>> routes_;  // path, method
};

// Answers with an error in OpenAI's shape.
void respond_failure(HttpExchange& exchange, const Failure& failure, HttpHeaders headers = {});
// The id that goes with everything about this request: the client's own if it gave a sane one.
std::string request_id(const HttpRequest& request);

}  // namespace cohort
