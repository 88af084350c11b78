// SPDX-License-Identifier: Apache-2.0
// A parsed template. Left-recursive forms (a.b.c, a + b + c) are lists, so that the depth of the
// tree is the nesting of the source, which the parser bounds.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "model/jinja/value.h"

namespace cohort::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star, double_star;  // null if absent
};

struct Literal {
  Value value;
};
struct Name {
  std::string name;
};
struct SequenceDisplay {
  Flavor flavor;  // kList or kTuple
  std::vector<ExpressionPtr> items;
};
struct DictDisplay {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
};
struct Conditional {
  ExpressionPtr condition, then, otherwise;  // otherwise: null if absent
};
struct Logical {
  bool all;  // `and`
  std::vector<ExpressionPtr> operands;
};
enum class UnaryOperator { kNot, kMinus, kPlus };
struct Unary {
  UnaryOperator op;
  ExpressionPtr operand;
};
enum class BinaryOperator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
struct Binary {
  ExpressionPtr first;
  std::vector<std::pair<BinaryOperator, ExpressionPtr>> rest;  // all of one precedence
};
struct Concatenation {
  std::vector<ExpressionPtr> operands;
};
enum class Comparator {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};
struct Comparison {
  ExpressionPtr first;
  std::vector<std::pair<Comparator, ExpressionPtr>> rest;
};

struct AttributeSuffix {
  std::string name;
};
struct IndexSuffix {
  ExpressionPtr index;
};
struct SliceSuffix {
  ExpressionPtr start, stop, step;  // null if absent
};
struct CallSuffix {
  CallArguments arguments;
};
struct FilterSuffix {
  std::string name;
  CallArguments arguments;
};
struct TestSuffix {
  std::string name;
  CallArguments arguments;
  bool negated;
};
struct Suffix {
  int line;
  std::variant<AttributeSuffix, IndexSuffix, SliceSuffix, CallSuffix, FilterSuffix, TestSuffix>
      what;
};
// base.name[index](call)|filter is test
struct Suffixed {
  ExpressionPtr base;
  std::vector<Suffix> suffixes;
};

struct Expression {
  int line;
  std::variant<Literal, Name, SequenceDisplay, DictDisplay, Conditional, Logical, Unary, Binary,
               Concatenation, Comparison, Suffixed>
      what;
};

struct Statement;
using Body = std::vector<Statement>;

// What `set` and `for` assign to.
struct Target {
  int line = 0;
  std::string name;           // empty for a tuple
  std::string attribute;      // of a namespace; empty if none
  std::vector<Target> parts;  // of a tuple
};

struct Data {
  TextPtr text;
};
struct Output {
  ExpressionPtr value;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};
struct For {
  Target target;
  ExpressionPtr iterable, condition;  // condition: null if absent
  bool recursive = false;
  Body body, otherwise;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  std::vector<Suffix> filters;
  Body body;
};
// A macro, the block of a `call`, or a generation block.
struct MacroDefinition {
  std::string name;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // default: null if none
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
  Body body;
};
struct Macro {
  std::shared_ptr<const MacroDefinition> definition;
};
struct CallBlock {
  ExpressionPtr call;
  std::shared_ptr<const MacroDefinition> caller;
};
struct FilterBlock {
  std::vector<Suffix> filters;
  Body body;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> values;
  Body body;
};
struct Generation {
  Body body;
};
struct Break {};
struct Continue {};

struct Statement {
  int line;
  std::variant<Data, Output, If, For, Set, SetBlock, Macro, CallBlock, FilterBlock, With,
               Generation, Break, Continue>
      what;
};

}  // namespace cohort::jinja
