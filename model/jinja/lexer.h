// SPDX-License-Identifier: Apache-2.0
// Template source to tokens, with Jinja's white-space rules under trim_blocks and lstrip_blocks:
// the new line after a block or comment goes, and so do blanks before one that starts its line; a
// '-' inside a delimiter takes all white space on that side, a '+' keeps it.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "model/jinja/budget.h"

namespace cohort::jinja {

enum class TokenKind {
  kData,         // text between tags
  kOutputBegin,  // {{
  kOutputEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,   // `text` is its value
  kInteger,  // `integer`
  kFloat,    // `number`
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  int line = 1;
  int64_t integer = 0;
  double number = 0;

  bool is_operator(std::string_view op) const { return kind == TokenKind::kOperator && text == op; }
  bool is_name(std::string_view name) const { return kind == TokenKind::kName && text == name; }
};

// Ends with kEnd. Throws TemplateError.
std::vector<Token> tokenize(std::string_view source);

}  // namespace cohort::jinja
