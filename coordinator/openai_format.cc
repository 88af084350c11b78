// SPDX-License-Identifier: Apache-2.0
#include "coordinator/openai_format.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace cohort {

using Json = nlohmann::ordered_json;

namespace {

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Characters, as clients count them.
int64_t code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

// JSON has no infinities; -9999 is what OpenAI's API says for "never".
double finite(float logprob) { return std::max(-9999.0, static_cast<double>(logprob)); }

// Part of a character cannot be text: `bytes` has it exactly.
std::string shown(const std::string& bytes) {
  return Json::parse(dump(Json(bytes))).get<std::string>();
}

Json chat_chance(const TokenChance& chance) {
  Json bytes = Json::array();
  for (const char c : chance.bytes) bytes.push_back(static_cast<uint8_t>(c));
  return {{"token", shown(chance.bytes)}, {"logprob", finite(chance.logprob)}, {"bytes", bytes}};
}

Json chat_logprobs(const std::vector<TokenRecord>& records) {
  Json content = Json::array();
  for (const TokenRecord& record : records) {
    Json entry = chat_chance(record.chosen);
    entry["top_logprobs"] = Json::array();
    for (const TokenChance& top : record.top) entry["top_logprobs"].push_back(chat_chance(top));
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

// offset: characters before the first of the records; moved on.
Json completion_logprobs(const std::vector<TokenRecord>& records, int64_t& offset) {
  Json out = {{"text_offset", Json::array()},
              {"token_logprobs", Json::array()},
              {"tokens", Json::array()},
              {"top_logprobs", Json::array()}};
  for (const TokenRecord& record : records) {
    const std::string token = shown(record.chosen.bytes);
    out["text_offset"].push_back(offset);
    out["token_logprobs"].push_back(finite(record.chosen.logprob));
    out["tokens"].push_back(token);
    Json top = Json::object();
    for (const TokenChance& chance : record.top) top[shown(chance.bytes)] = finite(chance.logprob);
    // The chosen token is always among them.
    top[token] = finite(record.chosen.logprob);
    out["top_logprobs"].push_back(std::move(top));
    offset += code_points(token);
  }
  return out;
}

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

Json finish_json(const std::optional<FinishReason>& finish) {
  return finish ? Json(name(*finish)) : Json(nullptr);
}

}  // namespace

AnswerStyle style_of(const OpenAiRequest& request) {
  return {.chat = request.chat,
          .stream = request.stream,
          .include_usage = request.include_usage,
          .return_token_ids = request.return_token_ids,
          .echo = request.echo,
          .logprobs = request.request.sampling.logprobs.has_value(),
          .n = request.request.n};
}

OpenAiAnswer::OpenAiAnswer(AnswerStyle style, std::string id, int64_t created, std::string model)
    : style_(style), id_(std::move(id)), created_(created), model_(std::move(model)) {}

void OpenAiAnswer::set_prompts(std::vector<TokenList> prompts, std::vector<std::string> texts) {
  prompts_ = std::move(prompts);
  prompt_texts_ = std::move(texts);
  choices_.resize(prompts_.size() * static_cast<size_t>(style_.n));
}

OpenAiAnswer::Choice& OpenAiAnswer::choice(int index) {
  return choices_.at(static_cast<size_t>(index));
}

std::string OpenAiAnswer::echo_of(int index) const {
  const size_t prompt = static_cast<size_t>(index / style_.n);
  return style_.echo && prompt < prompt_texts_.size() ? prompt_texts_[prompt] : std::string();
}

std::vector<std::string> OpenAiAnswer::chunks(const OutputDelta& delta) {
  Choice& state = choice(delta.choice);
  std::vector<std::string> out;
  const auto emit = [&](Json choice_json) {
    Json chunk = {{"id", id_},
                  {"object", style_.chat ? "chat.completion.chunk" : "text_completion"},
                  {"created", created_},
                  {"model", model_},
                  {"choices", Json::array({std::move(choice_json)})}};
    if (!state.begun && style_.return_token_ids)
      chunk["prompt_token_ids"] = *prompts_.at(static_cast<size_t>(delta.choice / style_.n));
    if (style_.include_usage) chunk["usage"] = nullptr;
    state.begun = true;
    out.push_back(dump(chunk));
  };
  const bool news =
      !delta.text.empty() || delta.finish || style_.logprobs || style_.return_token_ids;
  if (!state.begun && style_.chat)
    emit({{"index", delta.choice},
          {"delta", {{"role", "assistant"}, {"content", ""}}},
          {"logprobs", nullptr},
          {"finish_reason", nullptr}});
  if (!news) return out;
  Json json = {{"index", delta.choice}};
  if (style_.chat) {
    json["delta"] = delta.text.empty() ? Json::object() : Json{{"content", delta.text}};
  } else {
    json["text"] = state.begun ? delta.text : echo_of(delta.choice) + delta.text;
  }
  json["logprobs"] = nullptr;
  if (!delta.logprobs.empty())
    json["logprobs"] = style_.chat ? chat_logprobs(delta.logprobs)
                                   : completion_logprobs(delta.logprobs, state.text_offset);
  json["finish_reason"] = finish_json(delta.finish);
  if (style_.return_token_ids) json["token_ids"] = delta.tokens;
  emit(std::move(json));
  return out;
}

std::string OpenAiAnswer::usage_chunk(const Usage& usage) const {
  return dump({{"id", id_},
               {"object", style_.chat ? "chat.completion.chunk" : "text_completion"},
               {"created", created_},
               {"model", model_},
               {"choices", Json::array()},
               {"usage", usage_json(usage)}});
}

void OpenAiAnswer::collect(OutputDelta delta) {
  OutputDelta& all = choice(delta.choice).all;
  all.text += delta.text;
  all.tokens.insert(all.tokens.end(), delta.tokens.begin(), delta.tokens.end());
  std::move(delta.logprobs.begin(), delta.logprobs.end(), std::back_inserter(all.logprobs));
  if (delta.finish) all.finish = delta.finish;
}

std::string OpenAiAnswer::body(const Usage& usage) {
  Json choices = Json::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& state = choices_[i];
    const int index = static_cast<int>(i);
    Json json = {{"index", index}};
    if (style_.chat)
      json["message"] = {{"role", "assistant"}, {"content", state.all.text}, {"refusal", nullptr}};
    else
      json["text"] = echo_of(index) + state.all.text;
    json["logprobs"] = nullptr;
    if (style_.logprobs)
      json["logprobs"] = style_.chat ? chat_logprobs(state.all.logprobs)
                                     : completion_logprobs(state.all.logprobs, state.text_offset);
    json["finish_reason"] = finish_json(state.all.finish);
    if (style_.return_token_ids) {
      json["token_ids"] = state.all.tokens;
      json["prompt_token_ids"] = *prompts_.at(i / static_cast<size_t>(style_.n));
    }
    choices.push_back(std::move(json));
  }
  return dump({{"id", id_},
               {"object", style_.chat ? "chat.completion" : "text_completion"},
               {"created", created_},
               {"model", model_},
               {"choices", std::move(choices)},
               {"usage", usage_json(usage)}});
}

int http_status(const Failure& failure) {
  switch (failure.code) {
    case Code::kInvalidArgument:
      return 400;
    case Code::kUnauthenticated:
      return 401;
    case Code::kPermissionDenied:
      return 403;
    case Code::kNotFound:
      return 404;
    case Code::kDeadlineExceeded:
      return 408;
    case Code::kResourceExhausted:
      return 429;
    case Code::kCancelled:
      return 499;
    case Code::kUnavailable:
      return 503;
    default:
      return 500;
  }
}

std::string error_json(const Failure& failure) { return error_json(failure, http_status(failure)); }

std::string error_json(const Failure& failure, int status) {
  const char* type = status == 429                   ? "rate_limit_error"
                     : status == 408                 ? "timeout_error"
                     : status >= 400 && status < 500 ? "invalid_request_error"
                     : status == 503                 ? "service_unavailable_error"
                                                     : "server_error";
  return dump({{"error",
                {{"message", failure.message},
                 {"type", type},
                 {"param", failure.param.empty() ? Json(nullptr) : Json(failure.param)},
                 {"code", status}}}});
}

}  // namespace cohort
