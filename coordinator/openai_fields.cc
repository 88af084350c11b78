// SPDX-License-Identifier: Apache-2.0
#include "coordinator/openai_fields.h"

#include <charconv>
#include <limits>

#include "coordinator/chat_input.h"

namespace cohort {
namespace {

bool is_empty_text(const nlohmann::ordered_json& value) {
  return value.is_string() && value.get_ref<const std::string&>().empty();
}

using Json = nlohmann::ordered_json;

std::vector<std::string> read_stop(const JsonFields& fields, const RequestLimits& limits) {
  const Json* value = fields.find("stop");
  if (!value) return {};
  std::vector<std::string> stops;
  if (value->is_string()) {
    stops.push_back(value->get<std::string>());
  } else if (value->is_array() && value->size() <= static_cast<size_t>(limits.stop_strings)) {
    for (const Json& stop : *value) {
      if (!stop.is_string()) reject("'stop' must hold strings only", "stop");
      stops.push_back(stop.get<std::string>());
    }
  } else {
    reject(concat("'stop' must be a string or a list of at most ", limits.stop_strings, " strings"),
           "stop");
  }
  for (const std::string& stop : stops) {
    if (stop.empty() || stop.size() > limits.stop_bytes)
      reject(concat("each string in 'stop' must have 1 to ", limits.stop_bytes, " bytes"), "stop");
  }
  return stops;
}

std::vector<std::pair<TokenId, float>> read_logit_bias(const JsonFields& fields,
                                                       const ParseTarget& target) {
  const Json* value = fields.find("logit_bias");
  if (!value) return {};
  if (!value->is_object() || value->size() > static_cast<size_t>(target.limits.logit_biases))
    reject(concat("'logit_bias' must be an object of at most ", target.limits.logit_biases,
                  " token ids"),
           "logit_bias");
  std::vector<std::pair<TokenId, float>> biases;
  for (const auto& [key, bias] : value->items()) {
    TokenId id = -1;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
    if (parsed.ec != std::errc() || parsed.ptr != key.data() + key.size() || id < 0 ||
        id >= target.vocab)
      reject(concat("'logit_bias' has the key '", key, "', which is not a token id from 0 to ",
                    target.vocab - 1),
             "logit_bias");
    if (!bias.is_number() || !(bias.get<double>() >= -100 && bias.get<double>() <= 100))
      reject("values of 'logit_bias' must be numbers from -100 to 100", "logit_bias");
    biases.emplace_back(id, bias.get<float>());
  }
  return biases;
}

std::vector<TokenId> read_ids(const Json& list, const ParseTarget& target, const char* param) {
  std::vector<TokenId> ids;
  ids.reserve(list.size());
  for (const Json& id : list) ids.push_back(token_id(id, target.vocab, param));
  return ids;
}

// Content as one string: given as a string, or as parts of type "text".
std::string message_text(const Json& content, const std::string& param) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) reject("message content must be a string or a list of parts", param);
  std::string text;
  for (const Json& part : content) {
    const auto type = part.is_object() ? part.find("type") : part.end();
    if (!part.is_object() || type == part.end() || *type != "text")
      reject("only content parts of type 'text' are supported", param);
    const auto value = part.find("text");
    if (value == part.end() || !value->is_string())
      reject("a content part of type 'text' needs a string 'text'", param);
    text += value->get_ref<const std::string&>();
  }
  return text;
}

Json read_message(const Json& message, size_t index) {
  const std::string where = concat("messages[", index, "]");
  if (!message.is_object()) reject(where + " must be an object", where);
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string() || role->get_ref<const std::string&>().empty())
    reject(where + " needs a 'role'", where + ".role");
  Json out = message;
  const auto content = message.find("content");
  const bool absent = content == message.end() || content->is_null();
  // An assistant's turn may consist of tool calls alone.
  if (absent && *role != "assistant") reject(where + " needs 'content'", where + ".content");
  out["content"] = absent ? Json("") : Json(message_text(*content, where + ".content"));
  return out;
}

Json read_tools(const JsonFields& fields) {
  const Json* tools = fields.find("tools");
  if (!tools) return nullptr;
  if (!tools->is_array()) reject("'tools' must be a list", "tools");
  for (const Json& tool : *tools) {
    if (!tool.is_object()) reject("'tools' must hold objects", "tools");
  }
  const Json* choice = fields.find("tool_choice");
  const bool unused = tools->empty() || (choice && *choice == "none");
  return unused ? Json(nullptr) : *tools;
}

}  // namespace

SamplingOptions read_sampling(const JsonFields& fields, const ParseTarget& target) {
  constexpr int kMax = std::numeric_limits<int>::max();
  SamplingOptions s;
  s.temperature = static_cast<float>(fields.number("temperature", 0, 100).value_or(1));
  s.top_p = static_cast<float>(fields.number("top_p", 0, 1).value_or(1));
  if (s.top_p == 0) reject("'top_p' must be above 0", "top_p");
  // -1 says "off" to some servers, 0 to others: both do here.
  s.top_k = static_cast<int>(std::max<int64_t>(0, fields.integer("top_k", -1, kMax).value_or(0)));
  s.min_p = static_cast<float>(fields.number("min_p", 0, 1).value_or(0));
  if (const auto seed = fields.integer("seed", std::numeric_limits<int64_t>::min(),
                                       std::numeric_limits<int64_t>::max()))
    s.seed = static_cast<uint64_t>(*seed);
  s.frequency_penalty = static_cast<float>(fields.number("frequency_penalty", -2, 2).value_or(0));
  s.presence_penalty = static_cast<float>(fields.number("presence_penalty", -2, 2).value_or(0));
  s.repetition_penalty =
      static_cast<float>(fields.number("repetition_penalty", 0, 100).value_or(1));
  if (s.repetition_penalty == 0)
    reject("'repetition_penalty' must be above 0", "repetition_penalty");
  s.logit_bias = read_logit_bias(fields, target);
  if (const auto tokens = fields.integer("max_tokens", 1, kMax)) s.max_tokens = int(*tokens);
  if (const auto tokens = fields.integer("max_completion_tokens", 1, kMax))
    s.max_tokens = int(*tokens);
  s.min_tokens = static_cast<int>(fields.integer("min_tokens", 0, kMax).value_or(0));
  if (s.max_tokens && s.min_tokens > *s.max_tokens)
    reject("'min_tokens' must not be above 'max_tokens'", "min_tokens");
  s.stop = read_stop(fields, target.limits);
  if (const Json* ids = fields.find("stop_token_ids")) {
    if (!ids->is_array() || ids->size() > static_cast<size_t>(target.limits.stop_token_ids))
      reject(concat("'stop_token_ids' must be a list of at most ", target.limits.stop_token_ids,
                    " ids"),
             "stop_token_ids");
    s.stop_token_ids = read_ids(*ids, target, "stop_token_ids");
  }
  s.ignore_eos = fields.boolean("ignore_eos", false);
  s.include_stop_text = fields.boolean("include_stop_str_in_output", false);
  s.skip_special_tokens = fields.boolean("skip_special_tokens", true);
  return s;
}

std::vector<Prompt> read_prompts(const JsonFields& fields, const ParseTarget& target) {
  const Json* prompt = fields.find("prompt");
  if (!prompt) reject("'prompt' is missing", "prompt");
  if (prompt->is_string()) return {prompt->get<std::string>()};
  if (!prompt->is_array() || prompt->empty())
    reject("'prompt' must be a string, a list of token ids, or a list of either", "prompt");
  if (prompt->front().is_number()) return {read_ids(*prompt, target, "prompt")};
  if (prompt->size() > static_cast<size_t>(target.limits.sequences))
    reject(concat("'prompt' holds ", prompt->size(), " prompts; at most ", target.limits.sequences,
                  " are accepted"),
           "prompt");
  std::vector<Prompt> prompts;
  for (const Json& one : *prompt) {
    if (one.is_string())
      prompts.emplace_back(one.get<std::string>());
    else if (one.is_array())
      prompts.emplace_back(read_ids(one, target, "prompt"));
    else
      reject("'prompt' must hold strings or lists of token ids", "prompt");
  }
  return prompts;
}

std::shared_ptr<const ChatInput> read_chat(const JsonFields& fields) {
  const Json* messages = fields.find("messages");
  if (!messages || !messages->is_array() || messages->empty())
    reject("'messages' must be a list of at least one message", "messages");
  auto chat = std::make_shared<ChatInput>();
  chat->messages = Json::array();
  for (size_t i = 0; i < messages->size(); ++i)
    chat->messages.push_back(read_message((*messages)[i], i));
  chat->tools = read_tools(fields);
  if (const Json* extra = fields.find("chat_template_kwargs")) {
    if (!extra->is_object())
      reject("'chat_template_kwargs' must be an object", "chat_template_kwargs");
    chat->extra = *extra;
  }
  chat->add_generation_prompt = fields.boolean("add_generation_prompt", true);
  return chat;
}

void refuse_unsupported(const JsonFields& fields, bool chat) {
  for (const char* key : {"suffix",
                          "functions",
                          "function_call",
                          "audio",
                          "prediction",
                          "web_search_options",
                          "guided_json",
                          "guided_regex",
                          "guided_choice",
                          "guided_grammar",
                          "structured_outputs",
                          "prompt_logprobs",
                          "use_beam_search",
                          "continue_final_message",
                          "truncate_prompt_tokens",
                          "allowed_token_ids",
                          "bad_words",
                          "chat_template",
                          "documents",
                          "return_tokens_as_token_ids"}) {
    const Json* value = fields.find(key);
    const bool set = value && *value != false && !is_empty_text(*value) &&
                     !(value->is_array() && value->empty());
    if (set) reject(concat("'", key, "' is not supported"), key);
  }
  const Json* format = fields.find("response_format");
  if (format && !(format->is_object() && format->value("type", Json()) == "text"))
    reject("'response_format' other than {\"type\": \"text\"} is not supported", "response_format");
  const Json* choice = fields.find("tool_choice");
  if (chat && choice && *choice != "none" && *choice != "auto")
    reject("'tool_choice' must be \"none\" or \"auto\": forced calls are not supported",
           "tool_choice");
  const Json* modalities = fields.find("modalities");
  if (modalities && *modalities != Json::array({"text"}))
    reject("'modalities' other than [\"text\"] are not supported", "modalities");
}

}  // namespace cohort
