// SPDX-License-Identifier: Apache-2.0
// The part of a chat request that goes to the template as it is. Apart from request.h because it
// needs the whole of the JSON library.
#pragma once
#include <nlohmann/json.hpp>

namespace cohort {

struct ChatInput {
  nlohmann::ordered_json messages;  // array of objects; content is a string or absent
  nlohmann::ordered_json tools;     // null or array
  nlohmann::ordered_json extra;     // null or object: chat_template_kwargs
  bool add_generation_prompt = true;
};

}  // namespace cohort
