// SPDX-License-Identifier: Apache-2.0
#include "coordinator/openai_parse.h"

#include <algorithm>

#include "coordinator/openai_fields.h"

namespace cohort {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDefaultCompletionTokens = 16;  // OpenAI's

OpenAiRequest read_common(const JsonFields& fields, const ParseTarget& target, bool chat) {
  OpenAiRequest out;
  out.chat = chat;
  refuse_unsupported(fields, chat);
  out.request.model = fields.text("model", 1024);
  out.request.sampling = read_sampling(fields, target);
  out.request.n = static_cast<int>(fields.integer("n", 1, target.limits.sequences).value_or(1));
  out.request.tenant = fields.text("user", 256);
  out.request.priority =
      static_cast<int>(fields.integer("priority", INT32_MIN, INT32_MAX).value_or(0));
  out.request.cache_salt = fields.text("cache_salt", 256);
  out.return_token_ids = fields.boolean("return_token_ids", false);
  out.stream = fields.boolean("stream", false);
  if (const Json* options = fields.find("stream_options")) {
    if (!options->is_object()) reject("'stream_options' must be an object", "stream_options");
    if (!out.stream)
      reject("'stream_options' may only be set together with 'stream'", "stream_options");
    out.include_usage = JsonFields(*options).boolean("include_usage", false);
  }
  return out;
}

void check_sequences(const GenerateRequest& request, const RequestLimits& limits) {
  if (request.sequences() > limits.sequences)
    reject(concat("'n' times the number of prompts is ", request.sequences(), "; at most ",
                  limits.sequences, " is accepted"),
           "n");
}

OpenAiRequest read_completion(std::string_view body, const ParseTarget& target) {
  const Json json = parse_json_object(body, target.limits);
  const JsonFields fields(json);
  OpenAiRequest out = read_common(fields, target, false);
  out.request.prompts = read_prompts(fields, target);
  check_sequences(out.request, target.limits);
  out.request.add_special_tokens = fields.boolean("add_special_tokens", true);
  out.echo = fields.boolean("echo", false);
  SamplingOptions& sampling = out.request.sampling;
  if (!sampling.max_tokens)
    sampling.max_tokens = std::max(kDefaultCompletionTokens, sampling.min_tokens);
  if (const auto n = fields.integer("logprobs", 0, target.limits.logprobs))
    sampling.logprobs = static_cast<int>(*n);
  if (out.echo && sampling.logprobs)
    reject("'echo' together with 'logprobs' is not supported", "echo");
  const auto best_of = fields.integer("best_of", 1, target.limits.sequences);
  if (best_of && *best_of != out.request.n)
    reject("'best_of' is not supported unless it equals 'n'", "best_of");
  return out;
}

OpenAiRequest read_chat_completion(std::string_view body, const ParseTarget& target) {
  const Json json = parse_json_object(body, target.limits);
  const JsonFields fields(json);
  OpenAiRequest out = read_common(fields, target, true);
  out.request.chat = read_chat(fields);
  check_sequences(out.request, target.limits);
  const auto top = fields.integer("top_logprobs", 0, target.limits.logprobs);
  if (fields.boolean("logprobs", false))
    out.request.sampling.logprobs = static_cast<int>(top.value_or(0));
  else if (top.value_or(0) > 0)
    reject("'top_logprobs' needs 'logprobs' to be true", "top_logprobs");
  if (fields.boolean("echo", false)) reject("'echo' is not supported for chats", "echo");
  return out;
}

TokenizeBody read_tokenize(std::string_view body, const ParseTarget& target) {
  const Json json = parse_json_object(body, target.limits);
  const JsonFields fields(json);
  TokenizeBody out;
  out.request.model = fields.text("model", 1024);
  if (fields.find("messages")) {
    out.request.chat = read_chat(fields);
  } else {
    if (!fields.find("prompt")) reject("'prompt' or 'messages' is missing", "prompt");
    out.request.prompts = {fields.text("prompt", target.limits.body_bytes)};
  }
  out.request.add_special_tokens = fields.boolean("add_special_tokens", true);
  out.return_token_strings = fields.boolean("return_token_strs", false);
  return out;
}

std::vector<TokenId> read_detokenize(std::string_view body, const ParseTarget& target) {
  const Json json = parse_json_object(body, target.limits);
  const Json* tokens = JsonFields(json).find("tokens");
  if (!tokens || !tokens->is_array()) reject("'tokens' must be a list of token ids", "tokens");
  std::vector<TokenId> ids;
  for (const Json& id : *tokens) ids.push_back(token_id(id, target.vocab, "tokens"));
  return ids;
}

// The edge: what a reader throws becomes the failure.
template <class T>
Parsed<T> guarded(T (*read)(std::string_view, const ParseTarget&), std::string_view body,
                  const ParseTarget& target) {
  try {
    return read(body, target);
  } catch (const RequestError& error) {
    return error.failure;
  } catch (const Json::exception& error) {
    return invalid_request(concat("the body is malformed: ", error.what()));
  }
}

}  // namespace

Parsed<OpenAiRequest> parse_completion(std::string_view body, const ParseTarget& target) {
  return guarded(read_completion, body, target);
}

Parsed<OpenAiRequest> parse_chat_completion(std::string_view body, const ParseTarget& target) {
  return guarded(read_chat_completion, body, target);
}

Parsed<TokenizeBody> parse_tokenize(std::string_view body, const ParseTarget& target) {
  return guarded(read_tokenize, body, target);
}

Parsed<std::vector<TokenId>> parse_detokenize(std::string_view body, const ParseTarget& target) {
  return guarded(read_detokenize, body, target);
}

}  // namespace cohort
