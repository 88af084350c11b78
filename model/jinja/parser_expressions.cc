// SPDX-License-Identifier: Apache-2.0
#include "model/jinja/filters.h"
#include "model/jinja/parser_support.h"

namespace cohort::jinja {
namespace {

template <class Node>
ExpressionPtr make(int line, Node node) {
  return std::make_unique<Expression>(Expression{line, std::move(node)});
}

bool starts_primary(const Token& token) {
  switch (token.kind) {
    case TokenKind::kName:
    case TokenKind::kString:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return true;
    default:
      return token.is_operator("(") || token.is_operator("[") || token.is_operator("{");
  }
}

}  // namespace

ExpressionPtr Parser::parse_expression(bool with_conditional) {
  const Nesting nesting(*this);
  const int line = current().line;
  const size_t unknown = unknown_.size();
  ExpressionPtr value = parse_logical(false);
  while (with_conditional && skip_name("if")) {
    const Soft soft(*this, true);
    unknown_.resize(unknown);  // what was read so far is a branch
    Conditional conditional;
    conditional.then = std::move(value);
    conditional.condition = parse_logical(false);
    if (skip_name("else")) conditional.otherwise = parse_expression();
    value = make(line, std::move(conditional));
  }
  return value;
}

bool Parser::at_tuple_end() const {
  const Token& token = current();
  return token.kind == TokenKind::kBlockEnd || token.kind == TokenKind::kOutputEnd ||
         token.is_operator(")") || token.is_name("in") || token.is_name("recursive");
}

ExpressionPtr Parser::parse_tuple(bool with_conditional, bool parenthesized) {
  const int line = current().line;
  SequenceDisplay tuple{Flavor::kTuple, {}};
  bool comma = false;
  while (!at_tuple_end()) {
    tuple.items.push_back(parse_expression(with_conditional));
    if (!skip_operator(",")) break;
    comma = true;
  }
  if (!comma && tuple.items.size() == 1) return std::move(tuple.items[0]);
  if (tuple.items.empty() && !parenthesized) fail_unexpected("an expression");
  return make(line, std::move(tuple));
}

ExpressionPtr Parser::parse_logical(bool all) {
  const int line = current().line;
  ExpressionPtr first = all ? parse_not() : parse_logical(true);
  const std::string_view word = all ? "and" : "or";
  if (!current().is_name(word)) return first;
  Logical node{all, {}};
  node.operands.push_back(std::move(first));
  while (skip_name(word)) node.operands.push_back(all ? parse_not() : parse_logical(true));
  return make(line, std::move(node));
}

ExpressionPtr Parser::parse_not() {
  const int line = current().line;
  if (!skip_name("not")) return parse_comparison();
  const Nesting nesting(*this);
  return make(line, Unary{UnaryOperator::kNot, parse_not()});
}

bool Parser::take_comparator(Comparator& comparator) {
  static constexpr std::pair<std::string_view, Comparator> kOperators[] = {
      {"==", Comparator::kEqual},  {"!=", Comparator::kNotEqual},
      {"<", Comparator::kLess},    {"<=", Comparator::kLessEqual},
      {">", Comparator::kGreater}, {">=", Comparator::kGreaterEqual},
  };
  for (const auto& [op, meaning] : kOperators) {
    if (!skip_operator(op)) continue;
    comparator = meaning;
    return true;
  }
  if (skip_name("in")) {
    comparator = Comparator::kIn;
    return true;
  }
  if (current().is_name("not") && peek().is_name("in")) {
    at_ += 2;
    comparator = Comparator::kNotIn;
    return true;
  }
  return false;
}

ExpressionPtr Parser::parse_comparison() {
  const int line = current().line;
  ExpressionPtr first = parse_sum();
  Comparison node;
  Comparator comparator;
  while (take_comparator(comparator)) node.rest.emplace_back(comparator, parse_sum());
  if (node.rest.empty()) return first;
  node.first = std::move(first);
  return make(line, std::move(node));
}

ExpressionPtr Parser::parse_sum() {
  const int line = current().line;
  ExpressionPtr first = parse_concatenation();
  Binary node;
  while (true) {
    if (skip_operator("+")) {
      node.rest.emplace_back(BinaryOperator::kAdd, parse_concatenation());
    } else if (skip_operator("-")) {
      node.rest.emplace_back(BinaryOperator::kSubtract, parse_concatenation());
    } else {
      break;
    }
  }
  if (node.rest.empty()) return first;
  node.first = std::move(first);
  return make(line, std::move(node));
}

ExpressionPtr Parser::parse_concatenation() {
  const int line = current().line;
  ExpressionPtr first = parse_product();
  if (!current().is_operator("~")) return first;
  Concatenation node;
  node.operands.push_back(std::move(first));
  while (skip_operator("~")) node.operands.push_back(parse_product());
  return make(line, std::move(node));
}

ExpressionPtr Parser::parse_product() {
  static constexpr std::pair<std::string_view, BinaryOperator> kOperators[] = {
      {"*", BinaryOperator::kMultiply},
      {"/", BinaryOperator::kDivide},
      {"//", BinaryOperator::kFloorDivide},
      {"%", BinaryOperator::kModulo}};
  const int line = current().line;
  ExpressionPtr first = parse_power();
  Binary node;
  for (bool found = true; found;) {
    found = false;
    for (const auto& [op, meaning] : kOperators) {
      if (!skip_operator(op)) continue;
      node.rest.emplace_back(meaning, parse_power());
      found = true;
      break;
    }
  }
  if (node.rest.empty()) return first;
  node.first = std::move(first);
  return make(line, std::move(node));
}

ExpressionPtr Parser::parse_power() {
  const int line = current().line;
  ExpressionPtr first = parse_unary(true);
  Binary node;
  while (skip_operator("**")) node.rest.emplace_back(BinaryOperator::kPower, parse_unary(true));
  if (node.rest.empty()) return first;
  node.first = std::move(first);
  return make(line, std::move(node));
}

ExpressionPtr Parser::parse_unary(bool with_filters) {
  const int line = current().line;
  ExpressionPtr value;
  if (skip_operator("-")) {
    const Nesting nesting(*this);
    value = make(line, Unary{UnaryOperator::kMinus, parse_unary(false)});
  } else if (skip_operator("+")) {
    const Nesting nesting(*this);
    value = make(line, Unary{UnaryOperator::kPlus, parse_unary(false)});
  } else {
    value = parse_primary();
  }
  return parse_suffixes(std::move(value), with_filters);
}

ExpressionPtr Parser::parse_primary() {
  const int line = current().line;
  switch (current().kind) {
    case TokenKind::kName:
      return parse_name();
    case TokenKind::kString: {
      std::string text;
      while (current().kind == TokenKind::kString) text += take().text;
      return make(line, Literal{Value::text(std::move(text))});
    }
    case TokenKind::kInteger:
      return make(line, Literal{Value(take().integer)});
    case TokenKind::kFloat:
      return make(line, Literal{Value(take().number)});
    default:
      break;
  }
  if (skip_operator("(")) {
    ExpressionPtr value = parse_tuple(true, true);
    expect_operator(")");
    return value;
  }
  if (current().is_operator("[")) return parse_list();
  if (current().is_operator("{")) return parse_dict();
  fail_unexpected("an expression");
}

ExpressionPtr Parser::parse_name() {
  const Token token = take();
  const std::string& name = token.text;
  if (name == "true" || name == "True") return make(token.line, Literal{Value(true)});
  if (name == "false" || name == "False") return make(token.line, Literal{Value(false)});
  if (name == "none" || name == "None") return make(token.line, Literal{Value()});
  for (MacroDefinition* macro : macros_) {
    if (name == "varargs") macro->uses_varargs = true;
    if (name == "kwargs") macro->uses_kwargs = true;
    if (name == "caller") macro->uses_caller = true;
  }
  return make(token.line, Name{name});
}

ExpressionPtr Parser::parse_list() {
  const int line = current().line;
  expect_operator("[");
  SequenceDisplay list{Flavor::kList, {}};
  while (!current().is_operator("]")) {
    if (!list.items.empty()) expect_operator(",");
    if (current().is_operator("]")) break;
    list.items.push_back(parse_expression());
  }
  expect_operator("]");
  return make(line, std::move(list));
}

ExpressionPtr Parser::parse_dict() {
  const int line = current().line;
  expect_operator("{");
  DictDisplay dict;
  while (!current().is_operator("}")) {
    if (!dict.items.empty()) expect_operator(",");
    if (current().is_operator("}")) break;
    ExpressionPtr key = parse_expression();
    expect_operator(":");
    dict.items.emplace_back(std::move(key), parse_expression());
  }
  expect_operator("}");
  return make(line, std::move(dict));
}

ExpressionPtr Parser::parse_suffixes(ExpressionPtr base, bool with_filters) {
  const int line = current().line;
  std::vector<Suffix> suffixes;
  while (true) {
    const int at = current().line;
    if (current().is_operator(".") || current().is_operator("[")) {
      // Jinja reads these before any filter only: `a|f.b` names a filter "f.b".
      if (!suffixes.empty() && std::holds_alternative<FilterSuffix>(suffixes.back().what)) break;
      if (!suffixes.empty() && std::holds_alternative<TestSuffix>(suffixes.back().what)) break;
      suffixes.push_back(parse_attribute_or_index());
    } else if (current().is_operator("(")) {
      suffixes.push_back({at, CallSuffix{parse_arguments()}});
    } else if (with_filters && skip_operator("|")) {
      suffixes.push_back(parse_filter());
    } else if (with_filters && skip_name("is")) {
      suffixes.push_back(parse_test());
    } else {
      break;
    }
  }
  if (suffixes.empty()) return base;
  return make(line, Suffixed{std::move(base), std::move(suffixes)});
}

Suffix Parser::parse_attribute_or_index() {
  const int line = current().line;
  if (skip_operator("[")) return parse_subscript(line);
  expect_operator(".");
  if (current().kind == TokenKind::kInteger) {
    return {line, IndexSuffix{make(line, Literal{Value(take().integer)})}};
  }
  return {line, AttributeSuffix{take_name()}};
}

// A subscript up to `]` or `,`: an expression, or a slice (then null is returned).
ExpressionPtr Parser::parse_index_or_slice(std::optional<SliceSuffix>& slice) {
  const auto at_end = [&] { return current().is_operator("]") || current().is_operator(","); };
  ExpressionPtr first;
  if (!current().is_operator(":")) first = parse_expression();
  if (!skip_operator(":")) return first;
  slice.emplace();
  slice->start = std::move(first);
  if (!current().is_operator(":") && !at_end()) slice->stop = parse_expression();
  if (skip_operator(":") && !at_end()) slice->step = parse_expression();
  return nullptr;
}

Suffix Parser::parse_subscript(int line) {
  SequenceDisplay tuple{Flavor::kTuple, {}};
  bool comma = false;
  while (!current().is_operator("]")) {
    std::optional<SliceSuffix> slice;
    ExpressionPtr index = parse_index_or_slice(slice);
    if (slice) {
      if (!tuple.items.empty() || !skip_operator("]")) fail_here("a slice takes no further index");
      return {line, std::move(*slice)};
    }
    tuple.items.push_back(std::move(index));
    if (!skip_operator(",")) break;
    comma = true;
  }
  expect_operator("]");
  if (tuple.items.empty()) fail_here("expected an index");
  if (!comma) return {line, IndexSuffix{std::move(tuple.items[0])}};
  return {line, IndexSuffix{make(line, std::move(tuple))}};
}

void Parser::check_known(bool known, const char* kind, const std::string& name) {
  if (known || soft_) return;
  unknown_.push_back({Code::kInvalidArgument, std::string("No ") + kind + " named '" + name + "'.",
                      current().line});
}

Suffix Parser::parse_filter() {
  const int line = current().line;
  FilterSuffix filter;
  filter.name = take_name();
  while (skip_operator(".")) filter.name += "." + take_name();
  check_known(is_filter(filter.name), "filter", filter.name);
  if (current().is_operator("(")) filter.arguments = parse_arguments();
  return {line, std::move(filter)};
}

Suffix Parser::parse_test() {
  const int line = current().line;
  TestSuffix test;
  test.negated = skip_name("not");
  test.name = take_name();
  while (skip_operator(".")) test.name += "." + take_name();
  check_known(is_test(test.name), "test", test.name);
  const Token& next = current();
  if (next.is_operator("(")) {
    test.arguments = parse_arguments();
  } else if (starts_primary(next) && !next.is_name("else") && !next.is_name("or") &&
             !next.is_name("and")) {
    if (next.is_name("is")) fail_here("You cannot chain multiple tests with is");
    const Nesting nesting(*this);
    test.arguments.positional.push_back(parse_suffixes(parse_primary(), false));
  }
  return {line, std::move(test)};
}

CallArguments Parser::parse_arguments() {
  const Nesting nesting(*this);
  CallArguments arguments;
  expect_operator("(");
  bool first = true;
  while (!current().is_operator(")")) {
    if (!first) expect_operator(",");
    first = false;
    if (current().is_operator(")")) break;
    if (skip_operator("**")) {
      if (arguments.double_star) fail_here("invalid syntax for function call expression");
      arguments.double_star = parse_expression();
    } else if (skip_operator("*")) {
      if (arguments.star) fail_here("invalid syntax for function call expression");
      arguments.star = parse_expression();
    } else if (current().kind == TokenKind::kName && peek().is_operator("=")) {
      std::string name = take().text;
      expect_operator("=");
      arguments.named.emplace_back(std::move(name), parse_expression());
    } else {
      if (!arguments.named.empty() || arguments.star || arguments.double_star) {
        fail_here("invalid syntax for function call expression");
      }
      arguments.positional.push_back(parse_expression());
    }
  }
  expect_operator(")");
  return arguments;
}

std::vector<Suffix> Parser::parse_filter_chain() {
  std::vector<Suffix> filters;
  while (skip_operator("|")) filters.push_back(parse_filter());
  return filters;
}

}  // namespace cohort::jinja
