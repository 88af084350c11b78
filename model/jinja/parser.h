// SPDX-License-Identifier: Apache-2.0
// Tokens to a tree. Throws TemplateError with the line of the mistake.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "model/jinja/ast.h"
#include "model/jinja/lexer.h"

namespace cohort::jinja {

class Parser {
 public:
  // depth: most nesting of expressions and blocks.
  Parser(std::vector<Token> tokens, int depth) : tokens_(std::move(tokens)), depth_left_(depth) {}

  Body parse();

 private:
  class Nesting;  // counts one level of depth while it lives
  class Soft;     // sets whether unknown filters only fail when they are run
  using Words = std::initializer_list<std::string_view>;

  // Tokens.
  const Token& current() const { return tokens_[at_]; }
  const Token& peek() const { return tokens_[at_ + (at_ + 1 < tokens_.size())]; }
  Token take();
  bool skip_operator(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_operator(std::string_view op);
  void expect_name(std::string_view name);
  std::string take_name();
  void end_block();
  [[noreturn]] void fail_here(const std::string& message) const;
  [[noreturn]] void fail_unexpected(const std::string& wanted) const;

  // Statements (parser_statements.cc).
  Body parse_body(Words ends);
  bool at_block_end_word(Words ends) const;
  void parse_tag(Body& body);
  If parse_if();
  For parse_for();
  void parse_set(Body& body, int line);
  Macro parse_macro();
  CallBlock parse_call_block();
  FilterBlock parse_filter_block();
  With parse_with();
  Generation parse_generation();
  std::vector<std::pair<std::string, ExpressionPtr>> parse_parameters();
  void parse_macro_body(MacroDefinition& macro, std::string_view end);
  Target parse_target(bool with_attribute);
  Target parse_single_target(bool with_attribute);

  // Expressions (parser_expressions.cc).
  ExpressionPtr parse_expression(bool with_conditional = true);
  // One expression, or several with commas: a tuple.
  ExpressionPtr parse_tuple(bool with_conditional, bool parenthesized = false);
  bool at_tuple_end() const;
  ExpressionPtr parse_logical(bool all);
  ExpressionPtr parse_not();
  ExpressionPtr parse_comparison();
  bool take_comparator(Comparator& comparator);
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concatenation();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_name();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_suffixes(ExpressionPtr base, bool with_filters);
  Suffix parse_attribute_or_index();
  Suffix parse_subscript(int line);
  ExpressionPtr parse_index_or_slice(std::optional<SliceSuffix>& slice);
  Suffix parse_filter();
  Suffix parse_test();
  CallArguments parse_arguments();
  std::vector<Suffix> parse_filter_chain();
  void check_known(bool known, const char* kind, const std::string& name);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_left_;
  bool soft_ = false;
  std::vector<TemplateError> unknown_;  // filters and tests, reported when the source ends
  int loops_ = 0;
  std::vector<MacroDefinition*> macros_;  // that are being parsed, outermost first
};

}  // namespace cohort::jinja
