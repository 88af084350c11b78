// SPDX-License-Identifier: Apache-2.0
#include "model/jinja/filters.h"

#include <algorithm>
#include <charconv>

#include "model/jinja/interpreter.h"
#include "model/jinja/unicode.h"

namespace cohort::jinja {

Parameters::Parameters(std::string_view function, const Arguments& arguments,
                       std::initializer_list<std::string_view> names, size_t required)
    : function_(function), values_(names.size()) {
  const std::string who = std::string(function) + "()";
  if (arguments.positional.size() > names.size()) {
    fail(who + " takes at most " + std::to_string(names.size()) + " argument(s), got " +
         std::to_string(arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) fail(who + " got an unexpected keyword argument '" + name + "'");
    const Value*& slot = values_[static_cast<size_t>(found - names.begin())];
    if (slot) fail(who + " got multiple values for argument '" + name + "'");
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values_[i]) fail(who + " misses its argument '" + std::string(names.begin()[i]) + "'");
  }
}

bool Parameters::truthy(size_t i, bool otherwise) const {
  return values_[i] ? values_[i]->truthy() : otherwise;
}

const Value* Parameters::some(size_t i) const {
  return values_[i] && !values_[i]->is_none() ? values_[i] : nullptr;
}

int64_t Parameters::integer(size_t i, int64_t otherwise) const {
  if (!some(i)) return otherwise;
  const Value& value = *values_[i];
  require_defined(value);
  if (!value.is_integer()) {
    fail(std::string(function_) + "() needs an integer, not " + value.type_name());
  }
  return value.integer();
}

const Text& Parameters::text(size_t i) const {
  const Value& value = *values_[i];
  require_defined(value);
  if (!value.is_text()) {
    fail(std::string(function_) + "() needs a str, not " + value.type_name());
  }
  return value.text();
}

Value attribute_of(Interpreter& interpreter, const Value& item, const Value* attribute) {
  if (!attribute || attribute->is_none()) return item;
  if (!attribute->is_text()) return interpreter.item(item, *attribute);
  Value value = item;
  const std::string_view path = attribute->text().bytes;
  for (size_t at = 0; at <= path.size();) {
    const size_t dot = std::min(path.find('.', at), path.size());
    const std::string_view part = path.substr(at, dot - at);
    int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool number = error == std::errc() && end == part.data() + part.size() && part[0] != '-';
    value = interpreter.item(value, number ? Value(index) : Value::text(std::string(part)));
    at = dot + 1;
  }
  return value;
}

namespace {

// Part of Jinja, of no use in prompts: an error only where one is run.
constexpr std::string_view kUnsupported[] = {"groupby", "pprint",    "filesizeformat",
                                             "random",  "urlize",    "wordwrap",
                                             "xmlattr", "striptags", "urlencode"};

bool is_unsupported(std::string_view name) {
  return std::find(std::begin(kUnsupported), std::end(kUnsupported), name) !=
         std::end(kUnsupported);
}

Filter find_filter(std::string_view name) {
  for (const auto find :
       {find_text_filter, find_sequence_filter, find_select_filter, find_number_filter}) {
    if (const Filter filter = find(name)) return filter;
  }
  return nullptr;
}

}  // namespace

bool is_filter(std::string_view name) { return find_filter(name) || is_unsupported(name); }

Value call_filter(Interpreter& interpreter, std::string_view name, const Value& value,
                  const Arguments& arguments) {
  interpreter.budget().step();
  if (const Filter filter = find_filter(name)) return filter(interpreter, value, arguments);
  if (is_unsupported(name)) {
    fail_unsupported("the filter '" + std::string(name) + "' is not supported in chat templates");
  }
  fail("No filter named '" + std::string(name) + "' found.");
}

}  // namespace cohort::jinja
