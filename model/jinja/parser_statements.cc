// SPDX-License-Identifier: Apache-2.0
#include "model/jinja/parser_support.h"

namespace cohort::jinja {

void Parser::fail_here(const std::string& message) const {
  throw TemplateError{Code::kInvalidArgument, message, current().line};
}

void Parser::fail_unexpected(const std::string& wanted) const {
  const Token& token = current();
  const bool ends = token.kind == TokenKind::kEnd;
  const bool tag_ends = token.kind == TokenKind::kBlockEnd || token.kind == TokenKind::kOutputEnd;
  const std::string found = ends       ? "the end of the template"
                            : tag_ends ? "the end of the tag"
                                       : "'" + token.text + "'";
  fail_here("expected " + wanted + ", got " + found);
}

Token Parser::take() {
  const Token token = current();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::skip_operator(std::string_view op) {
  if (!current().is_operator(op)) return false;
  ++at_;
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  ++at_;
  return true;
}

void Parser::expect_operator(std::string_view op) {
  if (!skip_operator(op)) fail_unexpected("'" + std::string(op) + "'");
}

void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_unexpected("'" + std::string(name) + "'");
}

std::string Parser::take_name() {
  if (current().kind != TokenKind::kName) fail_unexpected("a name");
  return take().text;
}

void Parser::end_block() {
  if (current().kind != TokenKind::kBlockEnd) fail_unexpected("the end of the tag");
  ++at_;
}

Body Parser::parse() {
  Body body = parse_body({});
  if (current().kind != TokenKind::kEnd) fail_unexpected("text");
  if (!unknown_.empty()) throw unknown_.front();
  return body;
}

bool Parser::at_block_end_word(Words ends) const {
  if (current().kind != TokenKind::kBlockBegin) return false;
  for (const std::string_view word : ends) {
    if (peek().is_name(word)) return true;
  }
  return false;
}

// Statements up to a tag that begins with one of the words `ends`, whose delimiter is consumed.
Body Parser::parse_body(Words ends) {
  const Nesting nesting(*this);
  Body body;
  while (current().kind != TokenKind::kEnd) {
    if (at_block_end_word(ends)) {
      ++at_;
      return body;
    }
    const Token token = take();
    if (token.kind == TokenKind::kData) {
      body.push_back({token.line, Data{make_text(token.text)}});
    } else if (token.kind == TokenKind::kOutputBegin) {
      body.push_back({token.line, Output{parse_tuple(true)}});
      if (current().kind != TokenKind::kOutputEnd) fail_unexpected("the end of the tag");
      ++at_;
    } else {
      parse_tag(body);
    }
  }
  if (ends.size() > 0) fail_unexpected("'" + std::string(*(ends.end() - 1)) + "'");
  return body;
}

void Parser::parse_tag(Body& body) {
  const int line = current().line;
  const std::string word = take_name();
  const auto add = [&](auto node) { body.push_back({line, std::move(node)}); };
  if (word == "set") return parse_set(body, line);
  if (word == "if") {
    add(parse_if());
  } else if (word == "for") {
    add(parse_for());
  } else if (word == "macro") {
    add(parse_macro());
  } else if (word == "call") {
    add(parse_call_block());
  } else if (word == "filter") {
    add(parse_filter_block());
  } else if (word == "with") {
    add(parse_with());
  } else if (word == "generation") {
    add(parse_generation());
  } else if (word == "break" || word == "continue") {
    if (loops_ == 0) fail_here("'" + word + "' outside a loop");
    word == "break" ? add(Break{}) : add(Continue{});
  } else if (word == "include" || word == "import" || word == "from" || word == "extends" ||
             word == "block" || word == "autoescape" || word == "print") {
    throw TemplateError{Code::kUnimplemented,
                        "the tag '" + word + "' is not supported in chat templates", line};
  } else {
    throw TemplateError{Code::kInvalidArgument, "Encountered unknown tag '" + word + "'.", line};
  }
  end_block();
}

If Parser::parse_if() {
  const Soft soft(*this, true);
  If node;
  ExpressionPtr condition = parse_tuple(false);
  end_block();
  while (true) {
    Body body = parse_body({"elif", "else", "endif"});
    node.branches.emplace_back(std::move(condition), std::move(body));
    if (skip_name("elif")) {
      condition = parse_tuple(false);
      end_block();
    } else if (skip_name("else")) {
      end_block();
      node.otherwise = parse_body({"endif"});
      expect_name("endif");
      return node;
    } else {
      expect_name("endif");
      return node;
    }
  }
}

For Parser::parse_for() {
  For node;
  node.target = parse_target(false);
  if (node.target.name == "loop") fail_here("can't assign to the variable 'loop' in a for loop");
  expect_name("in");
  node.iterable = parse_tuple(false);
  const Soft soft(*this, false);
  if (skip_name("if")) node.condition = parse_expression();
  node.recursive = skip_name("recursive");
  end_block();
  ++loops_;
  node.body = parse_body({"else", "endfor"});
  --loops_;
  if (skip_name("else")) {
    end_block();
    node.otherwise = parse_body({"endfor"});
  }
  expect_name("endfor");
  return node;
}

Target Parser::parse_single_target(bool with_attribute) {
  const Nesting nesting(*this);
  Target target;
  target.line = current().line;
  if (skip_operator("(")) {
    target = parse_target(with_attribute);
    expect_operator(")");
    return target;
  }
  target.name = take_name();
  for (const std::string_view word : {"true", "false", "none", "True", "False", "None"}) {
    if (target.name == word) fail_here("can't assign to '" + target.name + "'");
  }
  if (with_attribute && skip_operator(".")) target.attribute = take_name();
  return target;
}

Target Parser::parse_target(bool with_attribute) {
  Target first = parse_single_target(with_attribute);
  if (!current().is_operator(",")) return first;
  Target tuple;
  tuple.line = first.line;
  tuple.parts.push_back(std::move(first));
  while (skip_operator(",")) {
    if (current().kind != TokenKind::kName && !current().is_operator("(")) break;
    if (current().is_name("in")) break;
    tuple.parts.push_back(parse_single_target(with_attribute));
  }
  return tuple;
}

void Parser::parse_set(Body& body, int line) {
  Target target = parse_target(true);
  if (skip_operator("=")) {
    ExpressionPtr value = parse_tuple(true);
    end_block();
    body.push_back({line, Set{std::move(target), std::move(value)}});
    return;
  }
  SetBlock block;
  block.target = std::move(target);
  block.filters = parse_filter_chain();
  end_block();
  const Soft soft(*this, false);
  block.body = parse_body({"endset"});
  expect_name("endset");
  end_block();
  body.push_back({line, std::move(block)});
}

std::vector<std::pair<std::string, ExpressionPtr>> Parser::parse_parameters() {
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;
  expect_operator("(");
  while (!current().is_operator(")")) {
    if (!parameters.empty()) expect_operator(",");
    std::string name = take_name();
    ExpressionPtr value;
    if (skip_operator("=")) {
      value = parse_expression();
    } else if (!parameters.empty() && parameters.back().second) {
      fail_here("non-default argument follows default argument");
    }
    parameters.emplace_back(std::move(name), std::move(value));
  }
  expect_operator(")");
  return parameters;
}

void Parser::parse_macro_body(MacroDefinition& macro, std::string_view end) {
  const Soft soft(*this, false);
  const int loops = std::exchange(loops_, 0);
  macros_.push_back(&macro);
  macro.body = parse_body({end});
  macros_.pop_back();
  loops_ = loops;
  expect_name(end);
}

Macro Parser::parse_macro() {
  auto macro = std::make_shared<MacroDefinition>();
  macro->name = take_name();
  macro->parameters = parse_parameters();
  end_block();
  parse_macro_body(*macro, "endmacro");
  return {macro};
}

CallBlock Parser::parse_call_block() {
  CallBlock node;
  auto caller = std::make_shared<MacroDefinition>();
  caller->name = "caller";
  if (current().is_operator("(")) caller->parameters = parse_parameters();
  node.call = parse_expression();
  end_block();
  parse_macro_body(*caller, "endcall");
  node.caller = std::move(caller);
  return node;
}

FilterBlock Parser::parse_filter_block() {
  FilterBlock node;
  node.filters.push_back(parse_filter());
  for (Suffix& filter : parse_filter_chain()) node.filters.push_back(std::move(filter));
  end_block();
  const Soft soft(*this, false);
  node.body = parse_body({"endfilter"});
  expect_name("endfilter");
  return node;
}

With Parser::parse_with() {
  With node;
  while (current().kind != TokenKind::kBlockEnd) {
    if (!node.values.empty()) expect_operator(",");
    Target target = parse_single_target(false);
    expect_operator("=");
    node.values.emplace_back(std::move(target), parse_expression());
  }
  end_block();
  const Soft soft(*this, false);
  node.body = parse_body({"endwith"});
  expect_name("endwith");
  return node;
}

Generation Parser::parse_generation() {
  end_block();
  const Soft soft(*this, false);
  const int loops = std::exchange(loops_, 0);
  Generation node{parse_body({"endgeneration"})};
  loops_ = loops;
  expect_name("endgeneration");
  return node;
}

}  // namespace cohort::jinja
