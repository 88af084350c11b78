// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "model/jinja/filters.h"
#include "model/jinja/interpreter.h"
#include "model/jinja/interpreter_support.h"
#include "model/jinja/loop.h"
#include "model/jinja/print.h"

namespace cohort::jinja {

void Scope::set(std::string_view name, Value value) {
  for (auto& [key, old] : variables) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope; scope = scope->parent.get()) {
    for (const auto& [key, value] : scope->variables) {
      if (key == name) return &value;
    }
  }
  return nullptr;
}

const Value* Namespace::attribute(std::string_view name) {
  const auto found = values.find(name);
  return found == values.end() ? nullptr : &found->second;
}

namespace {

ScopePtr scope_in(const ScopePtr& parent) {
  auto scope = std::make_shared<Scope>();
  scope->parent = parent;
  return scope;
}

class MacroObject : public Object {
 public:
  MacroObject(std::shared_ptr<const MacroDefinition> definition, ScopePtr outside)
      : definition_(std::move(definition)),
        outside_(std::move(outside)),
        name_(Value::text(definition_->name)) {}

  const char* type_name() const override { return "Macro"; }
  Value call(Interpreter& interpreter, const Arguments& arguments) override {
    return interpreter.run_macro(*definition_, outside_, arguments);
  }
  const Value* attribute(std::string_view name) override {
    return name == "name" ? &name_ : nullptr;
  }

 private:
  std::shared_ptr<const MacroDefinition> definition_;
  ScopePtr outside_;
  Value name_;
};

}  // namespace

// The walk uses a few stack frames per level of source, and a macro starts again at its own top:
// this many levels of walking per level of `depth` fit on half a megabyte of stack.
constexpr int kWalkPerDepth = 8;

Interpreter::Interpreter(Budget& budget, int depth, std::optional<std::time_t> now)
    : budget_(budget), calls_left_(depth), nesting_left_(depth * kWalkPerDepth), now_(now) {}

Interpreter::~Interpreter() {
  // Contents first move out and are then freed while nothing holds the owners' insides any more.
  for (const ScopePtr& scope : captured_) {
    auto variables = std::move(scope->variables);
    scope->variables.clear();
    scope->parent.reset();
  }
  for (const auto& space : namespaces_) {
    auto values = std::move(space->values);
    space->values.clear();
  }
}

std::shared_ptr<Namespace> Interpreter::make_namespace() {
  budget_.step();
  namespaces_.push_back(std::make_shared<Namespace>());
  return namespaces_.back();
}

std::time_t Interpreter::now() const { return now_ ? *now_ : std::time(nullptr); }

TextPtr Interpreter::run(const Body& body,
                         std::vector<std::pair<std::string_view, Value>> variables) {
  auto globals = std::make_shared<Scope>();
  globals->variables = global_functions();
  ScopePtr given = scope_in(globals);
  for (auto& [name, value] : variables) given->set(name, std::move(value));
  try {
    return capture(body, scope_in(given));
  } catch (TemplateError& error) {
    if (error.line == 0) error.line = line_;
    throw;
  }
}

TextPtr Interpreter::capture(const Body& body, const ScopePtr& scope) {
  TextBuilder text(budget_);
  const Redirect redirect(*this, text);
  run_body(body, scope);
  return text.take();
}

Interpreter::Flow Interpreter::run_body(const Body& body, const ScopePtr& scope) {
  const Deeper deeper(*this);
  for (const Statement& statement : body) {
    budget_.step();
    line_ = statement.line;
    const Flow flow =
        std::visit([&](const auto& node) { return run(node, scope); }, statement.what);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run(const Data& data, const ScopePtr&) {
  out_->append(*data.text);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run(const Output& output, const ScopePtr& scope) {
  append_text(evaluate(*output.value, scope), *out_, budget_);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run(const If& node, const ScopePtr& scope) {
  for (const auto& [condition, body] : node.branches) {
    if (evaluate(*condition, scope).truthy()) return run_body(body, scope);
  }
  return run_body(node.otherwise, scope);
}

Interpreter::Flow Interpreter::run(const Break&, const ScopePtr&) { return Flow::kBreak; }
Interpreter::Flow Interpreter::run(const Continue&, const ScopePtr&) { return Flow::kContinue; }

Interpreter::Flow Interpreter::run(const For& node, const ScopePtr& scope) {
  run_loop(node, scope, evaluate(*node.iterable, scope), 1);
  return Flow::kNext;
}

SequencePtr Interpreter::loop_items(const For& loop, const ScopePtr& scope, const Value& iterable) {
  SequencePtr items = iterate(iterable, budget_);
  if (!loop.condition) return items;
  auto kept = std::make_shared<Sequence>();
  kept->depth = items->depth;
  for (const Value& item : items->items) {
    budget_.step();
    const ScopePtr inner = scope_in(scope);
    assign(loop.target, item, inner);
    if (evaluate(*loop.condition, inner).truthy()) kept->items.push_back(item);
  }
  return kept;
}

void Interpreter::run_loop(const For& loop, const ScopePtr& scope, const Value& iterable,
                           int depth) {
  const SequencePtr items = loop_items(loop, scope, iterable);
  const auto state =
      std::make_shared<LoopObject>(loop, loop.recursive ? scope : nullptr, items, depth);
  if (loop.recursive) captured_.push_back(scope);
  for (size_t i = 0; i < items->items.size(); ++i) {
    budget_.step();
    state->move_to(i);
    const ScopePtr inner = scope_in(scope);
    inner->set("loop", Value(ObjectPtr(state)));
    assign(loop.target, items->items[i], inner);
    if (run_body(loop.body, inner) == Flow::kBreak) break;
  }
  if (items->items.empty()) run_body(loop.otherwise, scope_in(scope));
}

Value Interpreter::run_loop_again(const For& loop, const ScopePtr& outside, const Value& iterable,
                                  int depth) {
  const Deeper deeper(*this);
  if (calls_left_ == 0) fail_limit("the template's loops recurse too deeply");
  --calls_left_;
  TextBuilder text(budget_);
  const Redirect redirect(*this, text);
  run_loop(loop, outside, iterable, depth);
  ++calls_left_;
  return Value(text.take());
}

void Interpreter::assign(const Target& target, const Value& value, const ScopePtr& scope) {
  if (!target.parts.empty()) {
    const SequencePtr items = iterate(value, budget_);
    const size_t given = items->items.size(), wanted = target.parts.size();
    if (given != wanted) {
      fail((given < wanted ? "not enough values to unpack (expected "
                           : "too many values to unpack (expected ") +
           std::to_string(wanted) + ", got " + std::to_string(given) + ")");
    }
    for (size_t i = 0; i < given; ++i) assign(target.parts[i], items->items[i], scope);
    return;
  }
  if (target.attribute.empty()) return scope->set(target.name, value);
  const Value* found = scope->find(target.name);
  const auto* object = found ? found->object() : nullptr;
  auto* space = object ? dynamic_cast<Namespace*>(object->get()) : nullptr;
  if (!space) fail("cannot assign attribute on non-namespace object");
  if (target.attribute[0] == '_') {
    fail("a namespace takes no attribute whose name begins with an underscore: '" +
         target.attribute + "'");
  }
  space->values[target.attribute] = value;
}

Interpreter::Flow Interpreter::run(const Set& node, const ScopePtr& scope) {
  assign(node.target, evaluate(*node.value, scope), scope);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run(const SetBlock& node, const ScopePtr& scope) {
  const ScopePtr inner = scope_in(scope);
  Value value(capture(node.body, inner));
  for (const Suffix& filter : node.filters) value = apply(filter, value, inner);
  assign(node.target, value, scope);
  return Flow::kNext;
}

Value Interpreter::make_macro(std::shared_ptr<const MacroDefinition> definition,
                              const ScopePtr& scope) {
  captured_.push_back(scope);
  return Value(ObjectPtr(std::make_shared<MacroObject>(std::move(definition), scope)));
}

Interpreter::Flow Interpreter::run(const Macro& node, const ScopePtr& scope) {
  scope->set(node.definition->name, make_macro(node.definition, scope));
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run(const CallBlock& node, const ScopePtr& scope) {
  const auto* suffixed = std::get_if<Suffixed>(&node.call->what);
  if (!suffixed || !std::holds_alternative<CallSuffix>(suffixed->suffixes.back().what)) {
    fail("expected a call after 'call'");
  }
  Value callee = evaluate(*suffixed->base, scope);
  for (size_t i = 0; i + 1 < suffixed->suffixes.size(); ++i) {
    callee = apply(suffixed->suffixes[i], callee, scope);
  }
  Arguments arguments =
      evaluate(std::get<CallSuffix>(suffixed->suffixes.back().what).arguments, scope);
  arguments.named.emplace_back("caller", make_macro(node.caller, scope));
  append_text(call(callee, arguments), *out_, budget_);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run(const FilterBlock& node, const ScopePtr& scope) {
  const ScopePtr inner = scope_in(scope);
  Value value(capture(node.body, inner));
  for (const Suffix& filter : node.filters) value = apply(filter, value, inner);
  append_text(value, *out_, budget_);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run(const With& node, const ScopePtr& scope) {
  const ScopePtr inner = scope_in(scope);
  for (const auto& [target, value] : node.values) assign(target, evaluate(*value, scope), inner);
  return run_body(node.body, inner);
}

Interpreter::Flow Interpreter::run(const Generation& node, const ScopePtr& scope) {
  return run_body(node.body, scope_in(scope));
}

void Interpreter::bind_parameters(const MacroDefinition& macro, const ScopePtr& scope,
                                  const Arguments& arguments) {
  std::vector<Value> extra;
  auto others = std::make_shared<Dict>();
  const size_t wanted = macro.parameters.size();
  std::vector<const Value*> given(wanted);
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    if (i < wanted) {
      given[i] = &arguments.positional[i];
    } else {
      extra.push_back(arguments.positional[i]);
    }
  }
  for (const auto& [name, value] : arguments.named) {
    const auto parameter = std::find_if(macro.parameters.begin(), macro.parameters.end(),
                                        [&name = name](const auto& p) { return p.first == name; });
    if (parameter != macro.parameters.end()) {
      const Value*& slot = given[static_cast<size_t>(parameter - macro.parameters.begin())];
      if (slot) fail("macro '" + macro.name + "' got two values for '" + name + "'");
      slot = &value;
    } else if (name == "caller" && macro.uses_caller) {
      scope->set("caller", value);
    } else {
      others->set(Value::text(name), value);
    }
  }
  if (!others->entries.empty() && !macro.uses_kwargs) {
    fail("macro '" + macro.name + "' takes no keyword argument '" +
         others->entries[0].first.text().bytes + "'");
  }
  if (!extra.empty() && !macro.uses_varargs) {
    fail("macro '" + macro.name + "' takes not more than " + std::to_string(wanted) +
         " argument(s)");
  }
  if (macro.uses_caller && scope->variables.empty()) {
    scope->set("caller", Value::undefined("No caller defined"));
  }
  for (size_t i = 0; i < wanted; ++i) {
    const auto& [name, value] = macro.parameters[i];
    scope->set(name, given[i] ? *given[i]
                     : value  ? evaluate(*value, scope)
                              : Value::undefined("parameter '" + name + "' was not provided"));
  }
  if (macro.uses_kwargs) scope->set("kwargs", Value(DictPtr(std::move(others))));
  if (macro.uses_varargs) scope->set("varargs", make_sequence(Flavor::kTuple, std::move(extra)));
}

Value Interpreter::run_macro(const MacroDefinition& macro, const ScopePtr& outside,
                             const Arguments& arguments) {
  if (calls_left_ == 0) fail_limit("the template's macros call each other too deeply");
  --calls_left_;
  const ScopePtr scope = scope_in(outside);
  bind_parameters(macro, scope, arguments);
  TextPtr text = capture(macro.body, scope);
  ++calls_left_;
  return Value(std::move(text));
}

}  // namespace cohort::jinja
