// SPDX-License-Identifier: Apache-2.0
// The model as the coordinator needs it: names, tokenizer, template. Immutable, any thread.
#pragma once
#include <memory>
#include <string>

#include "coordinator/request.h"
#include "coordinator/response_sink.h"
#include "model/chat_template.h"
#include "model/tokenizer.h"

namespace cohort {

struct ServedModel {
  std::string name;     // what clients call it
  int64_t created = 0;  // Unix seconds
  int max_context = 0;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<const ChatTemplate> chat_template;  // null: the model has none
};

// The prompts of a request as token ids; INVALID_ARGUMENT if there is nothing to generate from.
// Takes milliseconds for long texts.
Result<std::vector<TokenList>> encode_prompts(const GenerateRequest& request,
                                              const ServedModel& model);

}  // namespace cohort
