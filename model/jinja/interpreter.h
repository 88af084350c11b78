// SPDX-License-Identifier: Apache-2.0
// Walks the tree of a template for one rendering. Recursion is bounded by depth, everything else
// by the budget.
#pragma once
#include <ctime>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/jinja/ast.h"

namespace cohort::jinja {

// Variables by name. Names are views into the tree, or into what outlives the rendering.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string_view, Value>> variables;

  void set(std::string_view name, Value value);
  const Value* find(std::string_view name) const;  // also in the parents; null if absent
};
using ScopePtr = std::shared_ptr<Scope>;

struct Namespace : Object {
  std::map<std::string, Value, std::less<>> values;
  const char* type_name() const override { return "Namespace"; }
  bool callable() const override { return false; }
  const Value* attribute(std::string_view name) override;
};

class Interpreter {
 public:
  Interpreter(Budget& budget, int depth, std::optional<std::time_t> now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;

  // `variables` are names with their values. The names must outlive the call.
  TextPtr run(const Body& body, std::vector<std::pair<std::string_view, Value>> variables);

  // For functions, filters and tests.
  Budget& budget() { return budget_; }
  int line() const { return line_; }
  std::time_t now() const;
  Value call(const Value& callee, const Arguments& arguments);
  Value attribute(const Value& value, std::string_view name);  // value.name
  Value item(const Value& value, const Value& key);            // value[key]
  Value run_macro(const MacroDefinition& macro, const ScopePtr& outside,
                  const Arguments& arguments);
  Value run_loop_again(const For& loop, const ScopePtr& outside, const Value& iterable, int depth);
  // A namespace whose contents go when the rendering ends, even if it contains itself.
  std::shared_ptr<Namespace> make_namespace();

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class Deeper;
  class Redirect;

  // Statements (interpreter_statements.cc).
  Flow run_body(const Body& body, const ScopePtr& scope);
  Flow run(const Data& data, const ScopePtr& scope);
  Flow run(const Output& output, const ScopePtr& scope);
  Flow run(const If& node, const ScopePtr& scope);
  Flow run(const For& node, const ScopePtr& scope);
  Flow run(const Set& node, const ScopePtr& scope);
  Flow run(const SetBlock& node, const ScopePtr& scope);
  Flow run(const Macro& node, const ScopePtr& scope);
  Flow run(const CallBlock& node, const ScopePtr& scope);
  Flow run(const FilterBlock& node, const ScopePtr& scope);
  Flow run(const With& node, const ScopePtr& scope);
  Flow run(const Generation& node, const ScopePtr& scope);
  Flow run(const Break& node, const ScopePtr& scope);
  Flow run(const Continue& node, const ScopePtr& scope);
  void run_loop(const For& loop, const ScopePtr& scope, const Value& iterable, int depth);
  SequencePtr loop_items(const For& loop, const ScopePtr& scope, const Value& iterable);
  void assign(const Target& target, const Value& value, const ScopePtr& scope);
  TextPtr capture(const Body& body, const ScopePtr& scope);
  Value make_macro(std::shared_ptr<const MacroDefinition> definition, const ScopePtr& scope);
  void bind_parameters(const MacroDefinition& macro, const ScopePtr& scope,
                       const Arguments& arguments);

  // Expressions (interpreter_expressions.cc).
  Value evaluate(const Expression& expression, const ScopePtr& scope);
  Value evaluate(const Literal& node, const ScopePtr& scope);
  Value evaluate(const Name& node, const ScopePtr& scope);
  Value evaluate(const SequenceDisplay& node, const ScopePtr& scope);
  Value evaluate(const DictDisplay& node, const ScopePtr& scope);
  Value evaluate(const Conditional& node, const ScopePtr& scope);
  Value evaluate(const Logical& node, const ScopePtr& scope);
  Value evaluate(const Unary& node, const ScopePtr& scope);
  Value evaluate(const Binary& node, const ScopePtr& scope);
  Value evaluate(const Concatenation& node, const ScopePtr& scope);
  Value evaluate(const Comparison& node, const ScopePtr& scope);
  Value evaluate(const Suffixed& node, const ScopePtr& scope);
  Value apply(const Suffix& suffix, const Value& value, const ScopePtr& scope);
  Arguments evaluate(const CallArguments& node, const ScopePtr& scope);
  Value evaluate_slice(const SliceSuffix& node, const Value& value, const ScopePtr& scope);

  Budget& budget_;
  int calls_left_;    // of macros
  int nesting_left_;  // of bodies and expressions being walked, through all macros
  std::optional<std::time_t> now_;
  int line_ = 0;
  TextBuilder* out_ = nullptr;
  // What could be part of a cycle of shared pointers: emptied at the end.
  std::vector<ScopePtr> captured_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

// Operators on values (operators.cc).
Value binary(BinaryOperator op, const Value& a, const Value& b, Budget& budget);
bool compare(Comparator comparator, const Value& a, const Value& b, Budget& budget);
Value negative(const Value& value);
// None for what is absent.
Value slice(const Value& value, const Value& start, const Value& stop, const Value& step,
            Budget& budget);

// Methods of strings, lists and dicts (methods*.cc). Null where Python has none of that name.
ObjectPtr bound_method(const Value& self, std::string_view name);
// Methods that would change the list or dict: the sandbox shows them as undefined.
bool changes_container(const Value& self, std::string_view name);
// The same as bound_method for loops and cyclers.
ObjectPtr bound_object_method(const ObjectPtr& object, std::string_view name);

// Functions that every template sees (globals.cc).
std::vector<std::pair<std::string_view, Value>> global_functions();

}  // namespace cohort::jinja
