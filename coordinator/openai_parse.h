// SPDX-License-Identifier: Apache-2.0
// Bodies of the OpenAI HTTP API as requests. Unknown fields are ignored; fields that are known but
// not supported are refused with their name, so that nobody gets something else than was asked.
#pragma once
#include <string_view>
#include <variant>

#include "coordinator/failure.h"
#include "coordinator/request.h"

namespace cohort {

// A request, and how its answer is to look.
struct OpenAiRequest {
  GenerateRequest request;
  bool chat = false;
  bool stream = false;
  bool include_usage = false;     // of streams
  bool return_token_ids = false;  // prompt_token_ids and token_ids beside the text
  bool echo = false;              // the prompt's text before the first output
};

template <class T>
using Parsed = std::variant<T, Failure>;

struct ParseTarget {
  int vocab = 0;
  RequestLimits limits;
};

Parsed<OpenAiRequest> parse_completion(std::string_view body, const ParseTarget& target);
Parsed<OpenAiRequest> parse_chat_completion(std::string_view body, const ParseTarget& target);

struct TokenizeBody {
  GenerateRequest request;  // one prompt, or a chat
  bool return_token_strings = false;
};
Parsed<TokenizeBody> parse_tokenize(std::string_view body, const ParseTarget& target);
Parsed<std::vector<TokenId>> parse_detokenize(std::string_view body, const ParseTarget& target);

}  // namespace cohort
