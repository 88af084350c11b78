// SPDX-License-Identifier: Apache-2.0
// Filters that make text.
#include <algorithm>

#include "model/jinja/filters.h"
#include "model/jinja/interpreter.h"
#include "model/jinja/print.h"
#include "model/jinja/unicode.h"

namespace cohort::jinja {
namespace {

// Any value as text without the mark of `safe`, as str() gives it.
TextPtr plain_text(const Value& value, Budget& budget) {
  const TextPtr text = to_text(value, budget);
  if (!text->markup) return text;
  auto plain = std::make_shared<Text>(*text);
  plain->markup = false;
  return plain;
}

Value trim(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("trim", arguments, {"chars"});
  std::optional<std::string> characters;
  if (given.some(0)) characters = given.text(0).bytes;
  Budget& budget = interpreter.budget();
  return Value(strip(to_text(value, budget), Side::kBoth, characters, budget));
}

template <TextPtr (*map)(const Text&, Budget&)>
Value mapped(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("a filter", arguments, {});
  Budget& budget = interpreter.budget();
  return Value(map(*to_text(value, budget), budget));
}

TextPtr title_words(const Text& text, Budget& budget) {
  return title(text, Words::kSeparated, budget);
}

Value replace_filter(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("replace", arguments, {"old", "new", "count"}, 2);
  Budget& budget = interpreter.budget();
  const TextPtr from = to_text(*given[0], budget), to = to_text(*given[1], budget);
  return Value(replace(*plain_text(value, budget), *from, *to, given.integer(2, -1), budget));
}

Value string_filter(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("string", arguments, {});
  return Value(to_text(value, interpreter.budget()));
}

Value safe(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("safe", arguments, {});
  auto text = std::make_shared<Text>(*to_text(value, interpreter.budget()));
  interpreter.budget().make_text(text->bytes.size(), text->bytes.size());
  text->markup = true;
  return Value(TextPtr(std::move(text)));
}

Value escape(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("escape", arguments, {});
  Budget& budget = interpreter.budget();
  return Value(escape_html(to_text(value, budget), budget));
}

Value force_escape(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("forceescape", arguments, {});
  Budget& budget = interpreter.budget();
  return Value(escape_html(plain_text(value, budget), budget));
}

Value indent(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("indent", arguments, {"width", "first", "blank"});
  require_defined(value);
  if (!value.is_text()) fail(std::string("indent() needs a str, not ") + value.type_name());
  Budget& budget = interpreter.budget();
  TextPtr prefix;
  if (given[0] && given[0]->is_text()) {
    prefix = given[0]->text_ptr();
  } else {
    prefix = repeat(*make_text(" "), given.integer(0, 4), budget);
  }
  const TextPtr ended = concatenate(value.text(), *make_text("\n"), budget);
  const std::vector<TextPtr> lines = split_lines(ended, false, budget);
  TextBuilder out(budget);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n");
    const bool wanted =
        i == 0 ? given.truthy(1, false) : given.truthy(2, false) || !lines[i]->bytes.empty();
    if (wanted) out.append(*prefix);
    out.append(*lines[i]);
  }
  return Value(out.take(value.text().markup));
}

Value format_filter(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    fail("can't handle positional and keyword arguments at the same time");
  }
  Value operand = make_sequence(Flavor::kTuple, arguments.positional);
  if (!arguments.named.empty()) {
    auto dict = std::make_shared<Dict>();
    for (const auto& [name, argument] : arguments.named) dict->set(Value::text(name), argument);
    operand = Value(DictPtr(std::move(dict)));
  }
  Budget& budget = interpreter.budget();
  return Value(format_percent(*to_text(value, budget), operand, budget));
}

Value center(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("center", arguments, {"width"});
  Arguments width;
  width.positional.push_back(Value(given.integer(0, 80)));
  const Value text(to_text(value, interpreter.budget()));
  return interpreter.call(interpreter.attribute(text, "center"), width);
}

Value truncate(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("truncate", arguments, {"length", "killwords", "end", "leeway"});
  Budget& budget = interpreter.budget();
  const TextPtr text = to_text(value, budget);
  const TextPtr end = given[2] ? to_text(*given[2], budget) : make_text("...");
  const int64_t wanted = given.integer(0, 255), leeway = given.integer(3, 5);
  const int64_t end_length = length(Value(end), budget);
  if (wanted < end_length || leeway < 0) fail("truncate() got a length shorter than its end");
  if (length(Value(text), budget) <= wanted + leeway) return Value(text);
  const size_t keep = static_cast<size_t>(wanted - end_length);
  TextPtr start = cut(text, 0, character_offset(text->bytes, keep), budget);
  if (!given.truthy(1, false)) start = split(start, " ", 1, true, budget)[0];
  return Value(concatenate(*start, *end, budget));
}

Value word_count(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("wordcount", arguments, {});
  const TextPtr text = to_text(value, interpreter.budget());
  interpreter.budget().scan(text->bytes.size() * 16);
  int64_t count = 0;
  bool inside = false;
  for (size_t at = 0; at < text->bytes.size();) {
    const Decoded c = decode_utf8(text->bytes, at);
    const bool word = c.value == '_' || is_digit(c.value) || is_alphabetic(c.value);
    count += word && !inside;
    inside = word;
    at += c.length;
  }
  return Value(count);
}

void read_separators(const Value& value, JsonStyle& style, Budget& budget) {
  const SequencePtr pair = iterate(value, budget);
  const auto& items = pair->items;
  if (items.size() != 2 || !items[0].is_text() || !items[1].is_text()) {
    fail("tojson() needs two separators");
  }
  style.item_separator = items[0].text().bytes;
  style.key_separator = items[1].text().bytes;
}

// With the parameters of Hugging Face's replacement of Jinja's own.
Value to_json_filter(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("tojson", arguments,
                         {"ensure_ascii", "indent", "separators", "sort_keys"});
  Budget& budget = interpreter.budget();
  JsonStyle style;
  style.ascii = given.truthy(0, false);
  style.sort_keys = given.truthy(3, false);
  if (given.some(1)) {
    style.indent = given[1]->is_text()
                       ? given.text(1).bytes
                       : repeat(*make_text(" "), given.integer(1, 0), budget)->bytes;
    style.item_separator.assign(1, ',');
  }
  if (given.some(2)) read_separators(*given[2], style, budget);
  return Value(to_json(value, style, budget));
}

constexpr NamedFilter kFilters[] = {
    {"trim", trim},
    {"upper", mapped<upper>},
    {"lower", mapped<lower>},
    {"capitalize", mapped<capitalize>},
    {"title", mapped<title_words>},
    {"replace", replace_filter},
    {"string", string_filter},
    {"safe", safe},
    {"escape", escape},
    {"e", escape},
    {"forceescape", force_escape},
    {"indent", indent},
    {"format", format_filter},
    {"center", center},
    {"truncate", truncate},
    {"wordcount", word_count},
    {"tojson", to_json_filter},
};

}  // namespace

Filter find_text_filter(std::string_view name) {
  for (const NamedFilter& filter : kFilters) {
    if (filter.name == name) return filter.run;
  }
  return nullptr;
}

}  // namespace cohort::jinja
