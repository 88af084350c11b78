// SPDX-License-Identifier: Apache-2.0
#include "coordinator/grpc_convert.h"

#include <cmath>

#include "coordinator/chat_input.h"

namespace cohort {

namespace {

struct Check {
  std::optional<Failure> failure;
  void require(bool good, const char* field, const std::string& what) {
    if (!good && !failure) failure = invalid_request(concat("'", field, "' must be ", what), field);
  }
  // NaN is out of every range.
  void range(double value, double least, double most, const char* field) {
    require(value >= least && value <= most, field, concat("from ", least, " to ", most));
  }
};

void check_ids(const google::protobuf::RepeatedField<int32_t>& ids, int vocab, const char* field,
               Check& check) {
  for (const int32_t id : ids)
    check.require(id >= 0 && id < vocab, field, concat("token ids from 0 to ", vocab - 1));
}

SamplingOptions sampling_from(const v1::SamplingOptions& in, const RequestLimits& limits, int vocab,
                              Check& check) {
  SamplingOptions s;
  if (in.has_temperature()) s.temperature = in.temperature();
  check.range(s.temperature, 0, 100, "temperature");
  if (in.has_top_p()) s.top_p = in.top_p();
  check.require(s.top_p > 0 && s.top_p <= 1, "top_p", "above 0 and at most 1");
  if (in.has_top_k()) s.top_k = std::max(0, in.top_k());
  check.require(in.top_k() >= -1, "top_k", "at least 0 (0: off)");
  if (in.has_min_p()) s.min_p = in.min_p();
  check.range(s.min_p, 0, 1, "min_p");
  if (in.has_seed()) s.seed = static_cast<uint64_t>(in.seed());
  s.frequency_penalty = in.frequency_penalty();
  check.range(s.frequency_penalty, -2, 2, "frequency_penalty");
  s.presence_penalty = in.presence_penalty();
  check.range(s.presence_penalty, -2, 2, "presence_penalty");
  if (in.has_repetition_penalty()) s.repetition_penalty = in.repetition_penalty();
  check.require(s.repetition_penalty > 0 && s.repetition_penalty <= 100, "repetition_penalty",
                "above 0 and at most 100");
  check.require(in.logit_bias_size() <= limits.logit_biases, "logit_bias",
                concat("at most ", limits.logit_biases, " entries"));
  for (const auto& [id, bias] : in.logit_bias()) {
    check.require(id >= 0 && id < vocab, "logit_bias", concat("for ids from 0 to ", vocab - 1));
    check.range(bias, -100, 100, "logit_bias");
    s.logit_bias.emplace_back(id, bias);
  }
  if (in.has_max_tokens()) s.max_tokens = in.max_tokens();
  check.require(!in.has_max_tokens() || in.max_tokens() >= 1, "max_tokens", "at least 1");
  s.min_tokens = in.min_tokens();
  check.require(s.min_tokens >= 0 && (!s.max_tokens || s.min_tokens <= *s.max_tokens), "min_tokens",
                "from 0 to max_tokens");
  check.require(in.stop_size() <= limits.stop_strings, "stop",
                concat("at most ", limits.stop_strings, " strings"));
  for (const std::string& stop : in.stop()) {
    check.require(!stop.empty() && stop.size() <= limits.stop_bytes, "stop",
                  concat("strings of 1 to ", limits.stop_bytes, " bytes"));
    s.stop.push_back(stop);
  }
  check.require(in.stop_token_ids_size() <= limits.stop_token_ids, "stop_token_ids",
                concat("at most ", limits.stop_token_ids, " ids"));
  check_ids(in.stop_token_ids(), vocab, "stop_token_ids", check);
  s.stop_token_ids.assign(in.stop_token_ids().begin(), in.stop_token_ids().end());
  s.ignore_eos = in.ignore_eos();
  if (in.has_logprobs()) s.logprobs = in.logprobs();
  check.range(in.logprobs(), 0, limits.logprobs, "logprobs");
  return s;
}

std::shared_ptr<const ChatInput> chat_from(const v1::ChatMessages& in, Check& check) {
  auto chat = std::make_shared<ChatInput>();
  chat->messages = nlohmann::ordered_json::array();
  check.require(in.messages_size() > 0, "chat.messages", "at least one message");
  for (const auto& message : in.messages()) {
    check.require(!message.role().empty(), "chat.messages.role", "set");
    nlohmann::ordered_json json = {{"role", message.role()}, {"content", message.content()}};
    if (!message.name().empty()) json["name"] = message.name();
    chat->messages.push_back(std::move(json));
  }
  return chat;
}

}  // namespace

std::variant<GenerateRequest, Failure> from_wire(const v1::GenerateRequest& in,
                                                 const RequestLimits& limits, int vocab) {
  Check check;
  GenerateRequest out;
  out.model = in.model();
  switch (in.input_case()) {
    case v1::GenerateRequest::kPrompt:
      out.prompts = {in.prompt()};
      break;
    case v1::GenerateRequest::kTokens:
      check_ids(in.tokens().ids(), vocab, "tokens", check);
      out.prompts = {std::vector<TokenId>(in.tokens().ids().begin(), in.tokens().ids().end())};
      break;
    case v1::GenerateRequest::kChat:
      out.chat = chat_from(in.chat(), check);
      break;
    case v1::GenerateRequest::INPUT_NOT_SET:
      return invalid_request("set one of 'prompt', 'tokens' and 'chat'", "prompt");
  }
  out.sampling = sampling_from(in.options(), limits, vocab, check);
  if (in.options().has_n()) out.n = in.options().n();
  check.range(out.n, 1, limits.sequences, "n");
  out.tenant = in.user().substr(0, 256);
  out.priority = in.priority();
  out.cache_salt = in.cache_salt().substr(0, 256);
  if (check.failure) return *check.failure;
  return out;
}

static void fill(const TokenChance& chance, v1::TokenLogprob& out) {
  out.set_token(chance.id);
  out.set_logprob(chance.logprob);
  out.set_text(chance.bytes);
}

v1::GenerateResponse to_wire(const OutputDelta& delta) {
  v1::GenerateResponse out;
  out.set_index(delta.choice);
  out.set_text(delta.text);
  out.mutable_token_ids()->Assign(delta.tokens.begin(), delta.tokens.end());
  for (const TokenRecord& record : delta.logprobs) {
    auto* entry = out.add_logprobs();
    fill(record.chosen, *entry->mutable_chosen());
    for (const TokenChance& top : record.top) fill(top, *entry->add_top());
  }
  if (delta.finish) out.set_finish_reason(name(*delta.finish));
  return out;
}

void fill(const Usage& usage, v1::Usage& out) {
  out.set_prompt_tokens(static_cast<int>(usage.prompt_tokens));
  out.set_completion_tokens(static_cast<int>(usage.completion_tokens));
  out.set_cached_tokens(static_cast<int>(usage.cached_tokens));
}

}  // namespace cohort
