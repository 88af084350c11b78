// SPDX-License-Identifier: Apache-2.0
// The filters (`value|name(...)`) and tests (`value is name(...)`) of the template language.
#pragma once
#include <initializer_list>
#include <string_view>

#include "model/jinja/value.h"

namespace cohort::jinja {

bool is_filter(std::string_view name);
bool is_test(std::string_view name);
Value call_filter(Interpreter& interpreter, std::string_view name, const Value& value,
                  const Arguments& arguments);
bool call_test(Interpreter& interpreter, std::string_view name, const Value& value,
               const Arguments& arguments);

using Filter = Value (*)(Interpreter&, const Value&, const Arguments&);
struct NamedFilter {
  std::string_view name;
  Filter run;
};
// Null if there is none in the family (filters_text.cc, filters_sequence.cc, filters_select.cc).
Filter find_text_filter(std::string_view name);
Filter find_sequence_filter(std::string_view name);
Filter find_select_filter(std::string_view name);
Filter find_number_filter(std::string_view name);

// What a function was called with, matched to its parameters as Python does it: by position, then
// by name. Fails for too many, unknown, doubled and missing ones.
class Parameters {
 public:
  Parameters(std::string_view function, const Arguments& arguments,
             std::initializer_list<std::string_view> names, size_t required = 0);

  const Value* operator[](size_t i) const { return values_[i]; }  // null if not given
  bool truthy(size_t i, bool otherwise) const;
  int64_t integer(size_t i, int64_t otherwise) const;
  // Null if absent or None.
  const Value* some(size_t i) const;
  const Text& text(size_t i) const;  // a required one

 private:
  std::string_view function_;
  std::vector<const Value*> values_;
};

// "a.b.0" of an item; null attribute: the item itself.
Value attribute_of(Interpreter& interpreter, const Value& item, const Value* attribute);

}  // namespace cohort::jinja
