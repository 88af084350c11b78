// SPDX-License-Identifier: Apache-2.0
// Filters that apply other filters, tests or attributes to each item, and `default`.
#include "model/jinja/filters.h"
#include "model/jinja/interpreter.h"

namespace cohort::jinja {
namespace {

// The first positional argument as the name of a filter, test or attribute; the rest stays.
std::string take_name(const char* filter, Arguments& arguments) {
  if (arguments.positional.empty()) fail(std::string(filter) + " misses its argument");
  const Value name = arguments.positional.front();
  arguments.positional.erase(arguments.positional.begin());
  require_defined(name);
  if (!name.is_text()) fail(std::string(filter) + " needs a name");
  return name.text().bytes;
}

Value map_attribute(Interpreter& interpreter, const Sequence& items, const Arguments& arguments) {
  const Parameters given("map", arguments, {"attribute", "default"}, 1);
  std::vector<Value> result;
  for (const Value& item : items.items) {
    interpreter.budget().step();
    Value value = attribute_of(interpreter, item, given[0]);
    result.push_back(given.some(1) && value.is_undefined() ? *given[1] : value);
  }
  return make_sequence(Flavor::kIterator, std::move(result));
}

Value map(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  if (!value.truthy()) return make_sequence(Flavor::kIterator, {});
  const SequencePtr items = iterate(value, interpreter.budget());
  if (arguments.positional.empty()) return map_attribute(interpreter, *items, arguments);
  Arguments rest = arguments;
  const std::string name = take_name("map", rest);
  std::vector<Value> result;
  for (const Value& item : items->items) {
    result.push_back(call_filter(interpreter, name, item, rest));
  }
  return make_sequence(Flavor::kIterator, std::move(result));
}

// The items for which a test (without one: the truth) of the item or its attribute is `wanted`.
template <bool wanted, bool by_attribute>
Value select(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  if (!value.truthy()) return make_sequence(Flavor::kIterator, {});
  const SequencePtr items = iterate(value, interpreter.budget());
  Arguments rest = arguments;
  Value attribute;
  if (by_attribute) {
    if (rest.positional.empty()) fail("Missing parameter for attribute name");
    attribute = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
  }
  const bool has_test = !rest.positional.empty();
  const std::string test = has_test ? take_name("select", rest) : "";
  std::vector<Value> result;
  for (const Value& item : items->items) {
    interpreter.budget().step();
    const Value subject = attribute_of(interpreter, item, &attribute);
    const bool passed = has_test ? call_test(interpreter, test, subject, rest) : subject.truthy();
    if (passed == wanted) result.push_back(item);
  }
  return make_sequence(Flavor::kIterator, std::move(result));
}

Value attr(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("attr", arguments, {"name"}, 1);
  if (value.dict()) return Value::undefined("a dict has no such attribute");
  return interpreter.attribute(value, given.text(0).bytes);
}

Value default_filter(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters given("default", arguments, {"default_value", "boolean"});
  if (!value.is_undefined() && !(given.truthy(1, false) && !value.truthy())) return value;
  return given[0] ? *given[0] : Value::text("");
}

constexpr NamedFilter kFilters[] = {
    {"map", map},
    {"select", select<true, false>},
    {"reject", select<false, false>},
    {"selectattr", select<true, true>},
    {"rejectattr", select<false, true>},
    {"attr", attr},
    {"default", default_filter},
    {"d", default_filter},
};

}  // namespace

Filter find_select_filter(std::string_view name) {
  for (const NamedFilter& filter : kFilters) {
    if (filter.name == name) return filter.run;
  }
  return nullptr;
}

}  // namespace cohort::jinja
