// SPDX-License-Identifier: Apache-2.0
// How Python shows values: str(), repr(), json.dumps() and the two kinds of format strings.
#pragma once
#include <optional>
#include <string>

#include "model/jinja/value.h"

namespace cohort::jinja {

std::string print_double(double value);  // shortest text that reads back the same
TextPtr to_text(const Value& value, Budget& budget);
void append_text(const Value& value, TextBuilder& out, Budget& budget);
void append_repr(const Value& value, TextBuilder& out, Budget& budget);

struct JsonStyle {
  bool ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;
  std::string item_separator = ", ", key_separator = ": ";
};
TextPtr to_json(const Value& value, const JsonStyle& style, Budget& budget);

// "%s and %d" % (a, b); `values` is the right operand.
TextPtr format_percent(const Text& pattern, const Value& values, Budget& budget);
// "{} and {name:>8}".format(a, name=b)
TextPtr format_braces(const Text& pattern, const Arguments& arguments, Budget& budget);
// format(value, specification)
TextPtr format_value(const Value& value, const std::string& specification, Budget& budget);

}  // namespace cohort::jinja
