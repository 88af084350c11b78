// SPDX-License-Identifier: Apache-2.0
#include "coordinator/served_model.h"

#include "coordinator/chat_input.h"

namespace cohort {

namespace {

std::string text_of(const Tokenizer& tokenizer, std::optional<TokenId> id) {
  return id ? tokenizer.token_bytes(*id) : std::string();
}

Result<std::vector<TokenId>> encode_chat(const ChatInput& chat, const ServedModel& model) {
  if (!model.chat_template)
    return invalid_argument(concat("the model '", model.name,
                                   "' has no chat template: use completions instead of chat"));
  TemplateInputs inputs{.messages = chat.messages, .bos_token = {}, .eos_token = {}};
  if (!chat.tools.is_null()) inputs.tools = &chat.tools;
  if (!chat.extra.is_null()) inputs.extra = &chat.extra;
  inputs.add_generation_prompt = chat.add_generation_prompt;
  inputs.bos_token = text_of(*model.tokenizer, model.tokenizer->bos());
  inputs.eos_token = text_of(*model.tokenizer, model.tokenizer->eos());
  const Result<RenderedChat> rendered = model.chat_template->render(inputs);
  if (!rendered.ok())
    return invalid_argument("the chat template refuses the messages: " +
                            rendered.status().message());
  // The template has written the special tokens itself.
  return model.tokenizer->encode(rendered->text, {.parse_special = true, .add_special = false},
                                 rendered->literal);
}

}  // namespace

Result<std::vector<TokenList>> encode_prompts(const GenerateRequest& request,
                                              const ServedModel& model) {
  std::vector<TokenList> out;
  const auto add = [&](std::vector<TokenId> ids) {
    out.push_back(std::make_shared<const std::vector<TokenId>>(std::move(ids)));
  };
  if (request.chat) {
    COHORT_ASSIGN_OR_RETURN(auto ids, encode_chat(*request.chat, model));
    add(std::move(ids));
    return out;
  }
  const EncodeOptions options{.parse_special = true, .add_special = request.add_special_tokens};
  for (const Prompt& prompt : request.prompts) {
    const auto* text = std::get_if<std::string>(&prompt);
    add(text ? model.tokenizer->encode(*text, options) : std::get<1>(prompt));
  }
  return out;
}

}  // namespace cohort
