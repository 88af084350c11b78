// SPDX-License-Identifier: Apache-2.0
#include "model/jinja/filters.h"
#include "model/jinja/interpreter_support.h"
#include "model/jinja/print.h"
#include "model/jinja/unicode.h"

namespace cohort::jinja {

Value Interpreter::evaluate(const Expression& expression, const ScopePtr& scope) {
  const Deeper deeper(*this);
  budget_.step();
  line_ = expression.line;
  return std::visit([&](const auto& node) { return evaluate(node, scope); }, expression.what);
}

Value Interpreter::evaluate(const Literal& node, const ScopePtr&) { return node.value; }

Value Interpreter::evaluate(const Name& node, const ScopePtr& scope) {
  if (const Value* found = scope->find(node.name)) return *found;
  return Value::undefined("'" + node.name + "' is undefined");
}

Value Interpreter::evaluate(const SequenceDisplay& node, const ScopePtr& scope) {
  std::vector<Value> items;
  for (const ExpressionPtr& item : node.items) items.push_back(evaluate(*item, scope));
  return make_sequence(node.flavor, std::move(items));
}

Value Interpreter::evaluate(const DictDisplay& node, const ScopePtr& scope) {
  auto dict = std::make_shared<Dict>();
  for (const auto& [key, value] : node.items) {
    Value name = evaluate(*key, scope);
    if (name.is_text()) budget_.scan(name.text().bytes.size());
    dict->set(std::move(name), evaluate(*value, scope));
  }
  return Value(DictPtr(std::move(dict)));
}

Value Interpreter::evaluate(const Conditional& node, const ScopePtr& scope) {
  if (evaluate(*node.condition, scope).truthy()) return evaluate(*node.then, scope);
  if (node.otherwise) return evaluate(*node.otherwise, scope);
  return Value::undefined("the inline if-expression evaluated to false and has no else section");
}

Value Interpreter::evaluate(const Logical& node, const ScopePtr& scope) {
  Value value;
  for (const ExpressionPtr& operand : node.operands) {
    value = evaluate(*operand, scope);
    if (value.truthy() != node.all) break;
  }
  return value;
}

Value Interpreter::evaluate(const Unary& node, const ScopePtr& scope) {
  Value value = evaluate(*node.operand, scope);
  if (node.op == UnaryOperator::kNot) return Value(!value.truthy());
  require_defined(value);
  if (!value.is_number())
    fail(std::string("bad operand type for a sign: '") + value.type_name() + "'");
  if (node.op == UnaryOperator::kMinus) return negative(value);
  return value.is_bool() ? Value(value.integer()) : value;
}

Value Interpreter::evaluate(const Binary& node, const ScopePtr& scope) {
  Value value = evaluate(*node.first, scope);
  for (const auto& [op, operand] : node.rest) {
    value = binary(op, value, evaluate(*operand, scope), budget_);
  }
  return value;
}

Value Interpreter::evaluate(const Concatenation& node, const ScopePtr& scope) {
  std::vector<Value> values;
  for (const ExpressionPtr& operand : node.operands) values.push_back(evaluate(*operand, scope));
  TextBuilder text(budget_);
  for (const Value& value : values) append_text(value, text, budget_);
  return Value(text.take());
}

Value Interpreter::evaluate(const Comparison& node, const ScopePtr& scope) {
  Value left = evaluate(*node.first, scope);
  for (const auto& [comparator, operand] : node.rest) {
    Value right = evaluate(*operand, scope);
    if (!compare(comparator, left, right, budget_)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Interpreter::evaluate(const Suffixed& node, const ScopePtr& scope) {
  Value value = evaluate(*node.base, scope);
  for (const Suffix& suffix : node.suffixes) value = apply(suffix, value, scope);
  return value;
}

Arguments Interpreter::evaluate(const CallArguments& node, const ScopePtr& scope) {
  Arguments arguments;
  for (const auto& value : node.positional) arguments.positional.push_back(evaluate(*value, scope));
  if (node.star) {
    for (const SequencePtr held = iterate(evaluate(*node.star, scope), budget_);
         const Value& value : held->items) {
      arguments.positional.push_back(value);
    }
  }
  for (const auto& [name, value] : node.named) {
    arguments.named.emplace_back(name, evaluate(*value, scope));
  }
  if (node.double_star) {
    const Value more = evaluate(*node.double_star, scope);
    if (!more.dict()) fail("the argument after ** must be a mapping");
    for (const auto& [key, value] : (*more.dict())->entries) {
      if (!key.is_text()) fail("keywords must be strings");
      arguments.named.emplace_back(key.text().bytes, value);
    }
  }
  return arguments;
}

Value Interpreter::evaluate_slice(const SliceSuffix& node, const Value& value,
                                  const ScopePtr& scope) {
  const auto part = [&](const ExpressionPtr& expression) {
    return expression ? evaluate(*expression, scope) : Value();
  };
  const Value start = part(node.start), stop = part(node.stop), step = part(node.step);
  return slice(value, start, stop, step, budget_);
}

Value Interpreter::apply(const Suffix& suffix, const Value& value, const ScopePtr& scope) {
  budget_.step();
  line_ = suffix.line;
  if (const auto* node = std::get_if<AttributeSuffix>(&suffix.what)) {
    return attribute(value, node->name);
  }
  if (const auto* node = std::get_if<IndexSuffix>(&suffix.what)) {
    return item(value, evaluate(*node->index, scope));
  }
  if (const auto* node = std::get_if<SliceSuffix>(&suffix.what)) {
    return evaluate_slice(*node, value, scope);
  }
  if (const auto* node = std::get_if<CallSuffix>(&suffix.what)) {
    const Arguments arguments = evaluate(node->arguments, scope);
    line_ = suffix.line;
    return call(value, arguments);
  }
  if (const auto* node = std::get_if<FilterSuffix>(&suffix.what)) {
    return call_filter(*this, node->name, value, evaluate(node->arguments, scope));
  }
  const auto& test = std::get<TestSuffix>(suffix.what);
  return Value(call_test(*this, test.name, value, evaluate(test.arguments, scope)) != test.negated);
}

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  require_defined(callee);
  const auto* object = callee.object();
  if (!object || !(*object)->callable()) {
    fail(std::string("'") + callee.type_name() + "' object is not callable");
  }
  const ObjectPtr kept = *object;
  return kept->call(*this, arguments);
}

namespace {

Value missing(const Value& value, const std::string& name) {
  return Value::undefined(std::string("'") + value.type_name() + " object' has no attribute '" +
                          name.substr(0, 100) + "'");
}

// What Python's getattr() finds: a method, or a member of an object.
std::optional<Value> member(const Value& value, std::string_view name) {
  if (name.starts_with('_')) return std::nullopt;  // the sandbox hides these
  if (const auto* object = value.object()) {
    if (const Value* found = (*object)->attribute(name)) return *found;
    if (ObjectPtr method = bound_object_method(*object, name)) return Value(std::move(method));
    return std::nullopt;
  }
  if (changes_container(value, name)) {
    return Value::undefined("access to attribute '" + std::string(name) + "' of '" +
                            value.type_name() + "' object is unsafe.");
  }
  if (ObjectPtr method = bound_method(value, name)) return Value(std::move(method));
  return std::nullopt;
}

std::optional<Value> at_index(const Value& value, int64_t index, Budget& budget) {
  const auto* list = value.sequence();
  if (!value.is_text() && !(list && (*list)->indexable())) return std::nullopt;
  const int64_t size = length(value, budget);
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  if (list) return (*list)->items[static_cast<size_t>(index)];
  const TextPtr& text = value.text_ptr();
  const size_t begin = character_offset(text->bytes, static_cast<size_t>(index));
  const size_t more = character_offset(std::string_view(text->bytes).substr(begin), 1);
  return Value(cut(text, begin, begin + more, budget));
}

}  // namespace

Value Interpreter::attribute(const Value& value, std::string_view name) {
  require_defined(value);
  if (auto found = member(value, name)) return *std::move(found);
  if (const auto* dict = value.dict()) {
    if (const Value* found = (*dict)->find(name)) return *found;
  }
  return missing(value, std::string(name));
}

Value Interpreter::item(const Value& value, const Value& key) {
  require_defined(value);
  if (key.is_text()) budget_.scan(key.text().bytes.size());
  if (const auto* dict = value.dict()) {
    const bool hashable =
        !key.dict() && !(key.sequence() && (*key.sequence())->flavor != Flavor::kTuple);
    if (const Value* found = hashable ? (*dict)->find(key) : nullptr) return *found;
  } else if (key.is_integer()) {
    if (auto found = at_index(value, key.integer(), budget_)) return *std::move(found);
  }
  if (key.is_text()) {
    if (auto found = member(value, key.text().bytes)) return *std::move(found);
  }
  return missing(value, key.is_text()      ? key.text().bytes
                        : key.is_integer() ? std::to_string(key.integer())
                                           : "");
}

}  // namespace cohort::jinja
