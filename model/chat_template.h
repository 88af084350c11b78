// SPDX-License-Identifier: Apache-2.0
// Renders chat messages with a model's own template: the subset of Jinja2 that chat templates use,
// with Hugging Face's settings (trim_blocks, lstrip_blocks, loop controls, `tojson` without ASCII
// escapes, raise_exception, strftime_now, generation tags). Parsed once; render() is const and may
// be called by any thread. Hostile templates end with an error: steps, depth and output are
// bounded.
#pragma once
#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/tokenizer.h"

namespace cohort {

struct TemplateLimits {
  int64_t steps = 2'000'000;       // statements, expressions and loop rounds
  int depth = 100;                 // nesting of source, calls and macros
  size_t output_bytes = 16 << 20;  // also of any intermediate string
  size_t source_bytes = 1 << 20;
};

struct TemplateInputs {
  const nlohmann::ordered_json& messages;  // array of {"role", "content", ...}
  const nlohmann::ordered_json* tools = nullptr;
  bool add_generation_prompt = true;
  std::string bos_token = {}, eos_token = {};
  // Further variables ("enable_thinking", "documents"): an object, or null.
  const nlohmann::ordered_json* extra = nullptr;
  std::optional<std::time_t> now = std::nullopt;  // what strftime_now shows; else the clock
};

struct RenderedChat {
  std::string text;
  // Parts of the text that came out of message strings (content, names, arguments): the tokenizer
  // recognises no control tokens in them. Ascending, disjoint.
  std::vector<TextRange> literal;
};

class ChatTemplate {
 public:
  static Result<std::unique_ptr<ChatTemplate>> parse(std::string_view source,
                                                     const TemplateLimits& limits = {});
  virtual ~ChatTemplate() = default;
  // Errors name the template's line; raise_exception gives INVALID_ARGUMENT with its message.
  virtual Result<RenderedChat> render(const TemplateInputs& inputs) const = 0;
};

}  // namespace cohort
