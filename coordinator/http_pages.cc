// SPDX-License-Identifier: Apache-2.0
// HttpFront: everything but generation.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "coordinator/http_front.h"
#include "coordinator/openai_format.h"

namespace cohort {

using Json = nlohmann::ordered_json;

namespace {

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void respond_json(HttpExchange& exchange, int status, const Json& json) {
  exchange.respond(status, "application/json", dump(json),
                   {{"x-request-id", request_id(exchange.request())}});
}

Json model_json(const ServedModel& model, int context) {
  return {{"id", model.name},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "cohort"},
          {"max_model_len", context}};
}

Json rank_json(const RankView& rank) {
  return {{"rank", rank.rank},   {"host", rank.host},
          {"pid", rank.pid},     {"tp", rank.tp},
          {"pp", rank.pp},       {"device", rank.device},
          {"where", rank.where}, {"last_progress_ms", rank.last_progress_ms}};
}

Json replica_json(const ReplicaView& r) {
  Json ranks = Json::array();
  for (const RankView& rank : r.ranks) ranks.push_back(rank_json(rank));
  return {{"name", r.name},
          {"state", name(r.state)},
          {"problem", r.problem.empty() ? Json(nullptr) : Json(r.problem)},
          {"layout", {{"tp", r.tp}, {"pp", r.pp}, {"shares", r.shares}}},
          {"max_context", r.max_context},
          {"max_batch", r.max_batch},
          {"restarts", r.restarts},
          {"running", r.running},
          {"queued", r.queued},
          {"assigned", r.assigned},
          {"kv_blocks",
           {{"total", r.blocks_total}, {"free", r.blocks_free}, {"cached", r.blocks_cached}}},
          {"preemptions", r.preemptions},
          {"steps", r.steps},
          {"ranks", std::move(ranks)}};
}

}  // namespace

void HttpFront::models(const Exchange& exchange) const {
  respond_json(*exchange, 200,
               {{"object", "list"},
                {"data", Json::array({model_json(service_.model(), service_.max_context())})}});
}

void HttpFront::model(const Exchange& exchange) const {
  const std::string id = exchange->request().path.substr(std::string("/v1/models/").size());
  if (id != service_.model().name)
    return respond_failure(*exchange,
                           {Code::kNotFound,
                            concat("the model '", id, "' does not exist; this server has '",
                                   service_.model().name, "'"),
                            "model",
                            {},
                            true});
  respond_json(*exchange, 200, model_json(service_.model(), service_.max_context()));
}

void HttpFront::tokenize(const Exchange& exchange) const {
  auto parsed = parse_tokenize(exchange->request().body, target());
  if (const auto* failure = std::get_if<Failure>(&parsed))
    return respond_failure(*exchange, *failure);
  auto body = std::make_shared<TokenizeBody>(std::move(std::get<TokenizeBody>(parsed)));
  if (const auto refusal = service_.check_model(body->request.model))
    return respond_failure(*exchange, *refusal);
  const bool posted = service_.offload([this, exchange, body] {
    const auto prompts = encode_prompts(body->request, service_.model());
    exchange->run([this, exchange, body, prompts] {
      if (!prompts.ok())
        return respond_failure(*exchange,
                               {prompts.status().code(), prompts.status().message(), {}, {}, true});
      const std::vector<TokenId>& tokens = *prompts->front();
      Json json = {{"count", tokens.size()},
                   {"max_model_len", service_.max_context()},
                   {"tokens", tokens},
                   {"token_strs", nullptr}};
      if (body->return_token_strings) {
        json["token_strs"] = Json::array();
        for (const TokenId id : tokens)
          json["token_strs"].push_back(service_.model().tokenizer->token_bytes(id));
      }
      respond_json(*exchange, 200, json);
    });
  });
  if (!posted)
    respond_failure(*exchange,
                    {Code::kUnavailable, "too many requests wait for encoding", {}, 1, false});
}

void HttpFront::detokenize(const Exchange& exchange) const {
  auto parsed = parse_detokenize(exchange->request().body, target());
  if (const auto* failure = std::get_if<Failure>(&parsed))
    return respond_failure(*exchange, *failure);
  const auto& ids = std::get<std::vector<TokenId>>(parsed);
  respond_json(*exchange, 200, {{"prompt", service_.model().tokenizer->decode(ids, false)}});
}

void HttpFront::health(const Exchange& exchange) const {
  respond_json(*exchange, 200, {{"status", "alive"}});
}

void HttpFront::ready(const Exchange& exchange) const {
  const auto view = service_.view();
  Json problems = Json::array();
  for (const ReplicaView& r : view->replicas) {
    if (!r.problem.empty()) problems.push_back(concat("replica ", r.name, ": ", r.problem));
  }
  if (view->replicas.empty()) problems.push_back("no replica has connected");
  if (service_.stopping()) problems.push_back("the server is shutting down");
  const bool ready = view->ready() > 0 && !service_.stopping();
  respond_json(*exchange, ready ? 200 : 503,
               {{"ready", ready},
                {"replicas_ready", view->ready()},
                {"replicas", view->replicas.size()},
                {"problems", std::move(problems)}});
}

void HttpFront::metrics(const Exchange& exchange) const {
  exchange->respond(200, "text/plain; version=0.0.4; charset=utf-8",
                    service_.metrics().render(*service_.view()));
}

void HttpFront::version(const Exchange& exchange) const {
  respond_json(*exchange, 200, {{"version", version_}});
}

void HttpFront::replicas(const Exchange& exchange) const {
  const auto view = service_.view();  // the next picture may come while this one is read
  Json list = Json::array();
  for (const ReplicaView& r : view->replicas) list.push_back(replica_json(r));
  respond_json(*exchange, 200, list);
}

void HttpFront::drain(const Exchange& exchange) const {
  const std::string name = exchange->request().path.substr(std::string("/admin/drain/").size());
  if (!service_.drain(name))
    return respond_failure(
        *exchange, {Code::kNotFound, concat("there is no replica '", name, "'"), {}, {}, true});
  respond_json(*exchange, 202, {{"draining", name}});
}

}  // namespace cohort
