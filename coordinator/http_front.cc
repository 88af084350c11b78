// SPDX-License-Identifier: Apache-2.0
#include "coordinator/http_front.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <random>

#include "coordinator/openai_format.h"
#include "coordinator/openai_sink.h"

namespace cohort {

namespace {

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string random_hex() {
  std::random_device device;
  std::string out;
  for (int i = 0; i < 24; ++i) out += "0123456789abcdef"[device() % 16];
  return out;
}

// Seconds, as "2.5". Absent if the header is; a failure if it is not a number above 0.
std::variant<std::optional<Duration>, Failure> timeout_of(const HttpRequest& request) {
  const std::string text(request.header("x-request-timeout"));
  if (text.empty()) return std::optional<Duration>();
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end != text.c_str() + text.size() || !(value > 0 && value <= 1e6))
    return invalid_request("the header x-request-timeout must be a number of seconds above 0",
                           "x-request-timeout");
  return std::optional<Duration>(
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(value)));
}

}  // namespace

std::string request_id(const HttpRequest& request) {
  const std::string_view given = request.header("x-request-id");
  const bool sane = !given.empty() && given.size() <= 128 &&
                    std::all_of(given.begin(), given.end(), [](unsigned char c) {
                      return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == ':';
                    });
  return sane ? std::string(given) : random_hex();
}

void respond_failure(HttpExchange& exchange, const Failure& failure, HttpHeaders headers) {
  if (failure.retry_after)
    headers.emplace_back("Retry-After", std::to_string(*failure.retry_after));
  if (failure.retry_is_pointless) headers.emplace_back("x-should-retry", "false");
  exchange.respond(http_status(failure), "application/json", error_json(failure), headers);
}

HttpFront::HttpFront(RequestService& service, std::string version)
    : service_(service), version_(std::move(version)) {
  add("POST", "/v1/completions", &HttpFront::completions);
  add("POST", "/v1/chat/completions", &HttpFront::chat_completions);
  add("GET", "/v1/models", &HttpFront::models);
  add("GET", "/v1/models/", &HttpFront::model);
  add("POST", "/tokenize", &HttpFront::tokenize);
  add("POST", "/detokenize", &HttpFront::detokenize);
  add("GET", "/health", &HttpFront::health);
  add("GET", "/ready", &HttpFront::ready);
  add("GET", "/metrics", &HttpFront::metrics);
  add("GET", "/version", &HttpFront::version);
  add("GET", "/admin/replicas", &HttpFront::replicas);
  add("POST", "/admin/drain/", &HttpFront::drain);
}

void HttpFront::add(const char* method, const char* path,
                    void (HttpFront::*route)(const Exchange&) const) {
  routes_[path][method] = [this, route](const Exchange& exchange) { (this->*route)(exchange); };
}

// A path that ends with '/' in the table takes one more segment. allowed: methods of the path.
const HttpFront::Route* HttpFront::find(const HttpRequest& request, std::string* allowed) const {
  auto at = routes_.find(request.path);
  if (at == routes_.end() || request.path.ends_with('/')) {
    const size_t slash = request.path.rfind('/');
    const bool has_segment = slash != std::string::npos && slash + 1 < request.path.size();
    // Names of models may hold slashes themselves.
    for (at = routes_.begin(); at != routes_.end(); ++at) {
      if (at->first.ends_with('/') && request.path.starts_with(at->first) && has_segment) break;
    }
  }
  if (at == routes_.end()) return nullptr;
  for (const auto& [method, route] : at->second)
    *allowed += (allowed->empty() ? "" : ", ") + method;
  // The exchange leaves out the body.
  const auto route = at->second.find(request.method == "HEAD" ? "GET" : request.method);
  return route == at->second.end() ? nullptr : &route->second;
}

void HttpFront::serve(Exchange exchange) const {
  std::string allowed;
  const HttpRequest& request = exchange->request();
  if (const Route* route = find(request, &allowed)) return (*route)(exchange);
  if (allowed.empty())
    return respond_failure(*exchange,
                           {Code::kNotFound, "there is nothing at " + request.path, {}, {}, true});
  Failure failure =
      invalid_request(concat(request.path, " takes ", allowed, ", not ", request.method));
  exchange->respond(405, "application/json", error_json(failure, 405), {{"Allow", allowed}});
}

ParseTarget HttpFront::target() const {
  return {service_.model().tokenizer->vocab_size(), service_.options().request};
}

void HttpFront::completions(const Exchange& exchange) const { generate(exchange, false); }
void HttpFront::chat_completions(const Exchange& exchange) const { generate(exchange, true); }

void HttpFront::generate(const Exchange& exchange, bool chat) const {
  const HttpRequest& http = exchange->request();
  const std::string id = request_id(http);
  auto parsed =
      chat ? parse_chat_completion(http.body, target()) : parse_completion(http.body, target());
  auto timeout = timeout_of(http);
  const Failure* refusal = std::get_if<Failure>(&parsed);
  if (!refusal) refusal = std::get_if<Failure>(&timeout);
  if (refusal) {
    service_.metrics().request_done(Outcome::rejected, 0);
    return respond_failure(*exchange, *refusal, {{"x-request-id", id}});
  }
  OpenAiRequest& request = std::get<OpenAiRequest>(parsed);
  request.request.timeout = std::get<std::optional<Duration>>(timeout);
  if (const auto tenant = http.header("x-tenant"); !tenant.empty())
    request.request.tenant = std::string(tenant.substr(0, 256));
  const auto sink = std::make_shared<OpenAiSink>(exchange, request, id, service_.model().tokenizer,
                                                 unix_seconds(), service_.model().name);
  const uint64_t number = service_.submit(std::move(request.request), sink);
  exchange->on_gone([&service = service_, number] { service.cancel(number); });
  exchange->on_quiet([weak = std::weak_ptr<OpenAiSink>(sink)] {
    if (const auto alive = weak.lock()) alive->quiet();
  });
}

}  // namespace cohort
