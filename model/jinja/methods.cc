// SPDX-License-Identifier: Apache-2.0
// Methods of lists and dicts, yes-or-no methods of strings, and methods bound to their object.
#include "model/jinja/methods.h"

#include <algorithm>

#include "model/jinja/filters.h"
#include "model/jinja/interpreter.h"
#include "model/jinja/unicode.h"

namespace cohort::jinja {
namespace {

struct BoundMethod : Object {
  BoundMethod(Value s, Method r) : self(std::move(s)), run(r) {}
  const char* type_name() const override { return "builtin_function_or_method"; }
  Value call(Interpreter& interpreter, const Arguments& arguments) override {
    return run(interpreter, self, arguments);
  }
  int depth() const override { return depth_around(self.depth()); }

  Value self;
  Method run;
};

Value get_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  if (!arguments.named.empty()) fail("dict.get() takes no keyword arguments");
  const Parameters given("get", arguments, {"key", "default"}, 1);
  if (given[0]->is_text()) interpreter.budget().scan(given[0]->text().bytes.size());
  if (const Value* found = (*self.dict())->find(*given[0])) return *found;
  return given[1] ? *given[1] : Value();
}

template <Flavor flavor>
Value view_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("a dict method", arguments, {});
  const auto& entries = (*self.dict())->entries;
  interpreter.budget().step(static_cast<int64_t>(entries.size()));
  std::vector<Value> items;
  items.reserve(entries.size());
  for (const auto& [key, value] : entries) {
    if (flavor == Flavor::kKeys) items.push_back(key);
    if (flavor == Flavor::kValues) items.push_back(value);
    if (flavor == Flavor::kItems) items.push_back(make_sequence(Flavor::kTuple, {key, value}));
  }
  return make_sequence(flavor, std::move(items));
}

Value copy_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters given("copy", arguments, {});
  return self;  // values do not change
}

Value count_items_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("count", arguments, {"value"}, 1);
  int64_t count = 0;
  for (const Value& item : (*self.sequence())->items) {
    count += equal(item, *given[0], interpreter.budget());
  }
  return Value(count);
}

Value index_of_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("index", arguments, {"value"}, 1);
  const auto& items = (*self.sequence())->items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (equal(items[i], *given[0], interpreter.budget())) return Value(static_cast<int64_t>(i));
  }
  fail("the value is not in the list");
}

constexpr NamedMethod kDictMethods[] = {
    {"get", get_method},
    {"items", view_method<Flavor::kItems>},
    {"keys", view_method<Flavor::kKeys>},
    {"values", view_method<Flavor::kValues>},
    {"copy", copy_method},
};
constexpr NamedMethod kListMethods[] = {
    {"copy", copy_method}, {"count", count_items_method}, {"index", index_of_method}};

// Jinja's immutable sandbox shows these as undefined.
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListChanges[] = {"append", "clear",  "extend",  "insert",
                                             "pop",    "remove", "reverse", "sort"};

template <size_t n>
Method find_in(const NamedMethod (&methods)[n], std::string_view name) {
  for (const NamedMethod& method : methods) {
    if (method.name == name) return method.run;
  }
  return nullptr;
}

using Question = bool (*)(char32_t);

// True if there is a character and all of them satisfy the question.
template <Question question>
Value all_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("a string method", arguments, {});
  const std::string_view bytes = self.text().bytes;
  interpreter.budget().scan(bytes.size() * 16);
  for (size_t at = 0; at < bytes.size();) {
    const Decoded character = decode_utf8(bytes, at);
    if (!question(character.value)) return Value(false);
    at += character.length;
  }
  return Value(!bytes.empty());
}

bool is_letter_or_digit(char32_t value) { return is_alphabetic(value) || is_digit(value); }

// Some character has a case, and the text is what the mapping makes of it.
template <TextPtr (*same)(const Text&, Budget&), TextPtr (*other)(const Text&, Budget&)>
Value case_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("a string method", arguments, {});
  const std::string& bytes = self.text().bytes;
  Budget& budget = interpreter.budget();
  return Value(same(self.text(), budget)->bytes == bytes &&
               other(self.text(), budget)->bytes != bytes);
}

constexpr NamedMethod kQuestions[] = {
    {"isspace", all_method<is_space>},         {"isdigit", all_method<is_digit>},
    {"isdecimal", all_method<is_digit>},       {"isnumeric", all_method<is_digit>},
    {"isalpha", all_method<is_alphabetic>},    {"isalnum", all_method<is_letter_or_digit>},
    {"isprintable", all_method<is_printable>}, {"islower", case_method<lower, upper>},
    {"isupper", case_method<upper, lower>},
};

}  // namespace

Method find_text_question(std::string_view name) { return find_in(kQuestions, name); }

bool changes_container(const Value& self, std::string_view name) {
  const auto* list = self.sequence();
  if (list && (*list)->flavor == Flavor::kList) {
    return std::find(std::begin(kListChanges), std::end(kListChanges), name) !=
           std::end(kListChanges);
  }
  return self.dict() && std::find(std::begin(kDictChanges), std::end(kDictChanges), name) !=
                            std::end(kDictChanges);
}

ObjectPtr bound_method(const Value& self, std::string_view name) {
  Method run = nullptr;
  if (self.is_text()) run = find_text_method(name);
  if (self.dict()) run = find_in(kDictMethods, name);
  if (const auto* list = self.sequence(); list && (*list)->indexable()) {
    run = find_in(kListMethods, name);
    if (run == copy_method && (*list)->flavor != Flavor::kList) run = nullptr;
  }
  return run ? std::make_shared<BoundMethod>(self, run) : nullptr;
}

}  // namespace cohort::jinja
