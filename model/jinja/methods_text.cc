// SPDX-License-Identifier: Apache-2.0
// Methods of strings.
#include <algorithm>

#include "model/jinja/filters.h"
#include "model/jinja/interpreter.h"
#include "model/jinja/methods.h"
#include "model/jinja/print.h"
#include "model/jinja/unicode.h"

namespace cohort::jinja {
namespace {

template <Side side>
Value strip_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("strip", arguments, {"chars"});
  std::optional<std::string> characters;
  if (given.some(0)) characters = given.text(0).bytes;
  return Value(strip(self.text_ptr(), side, characters, interpreter.budget()));
}

Value list_of(std::vector<TextPtr> parts, Flavor flavor = Flavor::kList) {
  std::vector<Value> items(parts.begin(), parts.end());
  return make_sequence(flavor, std::move(items));
}

template <bool from_right>
Value split_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("split", arguments, {"sep", "maxsplit"});
  const int64_t count = given.integer(1, -1);
  Budget& budget = interpreter.budget();
  if (!given.some(0)) {
    return list_of(split_white_space(self.text_ptr(), count, from_right, budget));
  }
  return list_of(split(self.text_ptr(), given.text(0).bytes, count, from_right, budget));
}

Value split_lines_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("splitlines", arguments, {"keepends"});
  return list_of(split_lines(self.text_ptr(), given.truthy(0, false), interpreter.budget()));
}

template <bool from_right>
Value partition_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("partition", arguments, {"sep"}, 1);
  auto parts = split(self.text_ptr(), given.text(0).bytes, 1, from_right, interpreter.budget());
  if (parts.size() == 2) {
    parts.insert(parts.begin() + 1, given[0]->text_ptr());
  } else {
    const TextPtr empty = make_text("");
    parts = from_right ? std::vector<TextPtr>{empty, empty, parts[0]}
                       : std::vector<TextPtr>{parts[0], empty, empty};
  }
  return list_of(std::move(parts), Flavor::kTuple);
}

Value replace_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("replace", arguments, {"old", "new", "count"}, 2);
  return Value(replace(self.text(), given.text(0), given.text(1), given.integer(2, -1),
                       interpreter.budget()));
}

template <TextPtr (*map)(const Text&, Budget&)>
Value map_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("a string method", arguments, {});
  return Value(map(self.text(), interpreter.budget()));
}

TextPtr title_letters(const Text& text, Budget& budget) {
  return title(text, Words::kLetters, budget);
}

Value join_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("join", arguments, {"iterable"}, 1);
  std::vector<TextPtr> parts;
  for (const SequencePtr held = iterate(*given[0], interpreter.budget());
       const Value& item : held->items) {
    if (!item.is_text())
      fail(std::string("sequence item: expected str instance, ") + item.type_name() + " found");
    parts.push_back(self.text().markup ? escape_html(item.text_ptr(), interpreter.budget())
                                       : item.text_ptr());
  }
  return Value(join(parts, self.text(), interpreter.budget()));
}

Value format_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return Value(format_braces(self.text(), arguments, interpreter.budget()));
}

// The part of a text that find(), count() and their like look at, as bytes.
struct Window {
  size_t begin, end;
  bool empty_range;  // start beyond stop: not even "" is found
};

Window window_of(Interpreter& interpreter, const Value& self, const Parameters& given) {
  const std::string_view bytes = self.text().bytes;
  if (!given.some(1) && !given.some(2)) {
    interpreter.budget().scan(bytes.size());
    return {0, bytes.size(), false};
  }
  const int64_t size = length(self, interpreter.budget());
  const auto clamp = [&](int64_t index) {
    return static_cast<size_t>(std::clamp<int64_t>(index < 0 ? index + size : index, 0, size));
  };
  const int64_t start = given.integer(1, 0);
  const size_t first = clamp(start), last = clamp(given.integer(2, size));
  return {character_offset(bytes, first), character_offset(bytes, last),
          first > last || start > size};
}

template <bool from_end>
bool affix_method_at(std::string_view text, const Value& affix) {
  if (!affix.is_text())
    fail(std::string("startswith and endswith need a str, not ") + affix.type_name());
  const std::string& bytes = affix.text().bytes;
  return from_end ? text.ends_with(bytes) : text.starts_with(bytes);
}

template <bool from_end>
Value affix_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("startswith", arguments, {"prefix", "start", "end"}, 1);
  const Window window = window_of(interpreter, self, given);
  if (window.empty_range) return Value(false);
  const std::string_view text =
      std::string_view(self.text().bytes).substr(window.begin, window.end - window.begin);
  const auto* tuple = given[0]->sequence();
  if (!tuple || (*tuple)->flavor != Flavor::kTuple) {
    require_defined(*given[0]);
    return Value(affix_method_at<from_end>(text, *given[0]));
  }
  for (const Value& affix : (*tuple)->items) {
    if (affix_method_at<from_end>(text, affix)) return Value(true);
  }
  return Value(false);
}

template <bool from_right, bool must>
Value find_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("find", arguments, {"sub", "start", "end"}, 1);
  const Window window = window_of(interpreter, self, given);
  const std::string_view bytes = self.text().bytes;
  const std::string_view text =
      bytes.substr(window.begin, window.empty_range ? 0 : window.end - window.begin);
  const std::string& wanted = given.text(0).bytes;
  const size_t found = window.empty_range ? std::string_view::npos
                       : from_right       ? text.rfind(wanted)
                                          : text.find(wanted);
  if (found != std::string_view::npos) {
    return Value(static_cast<int64_t>(count_characters(bytes.substr(0, window.begin + found))));
  }
  if (must) fail("substring not found");
  return Value(int64_t{-1});
}

Value count_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("count", arguments, {"sub", "start", "end"}, 1);
  const Window window = window_of(interpreter, self, given);
  if (window.empty_range) return Value(int64_t{0});
  const std::string_view text =
      std::string_view(self.text().bytes).substr(window.begin, window.end - window.begin);
  const std::string& wanted = given.text(0).bytes;
  if (wanted.empty()) return Value(static_cast<int64_t>(count_characters(text)) + 1);
  int64_t count = 0;
  for (size_t at = text.find(wanted); at != std::string_view::npos;
       at = text.find(wanted, at + wanted.size())) {
    ++count;
  }
  return Value(count);
}

template <bool suffix>
Value remove_affix_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("removeprefix", arguments, {"affix"}, 1);
  const std::string &bytes = self.text().bytes, &affix = given.text(0).bytes;
  const bool there = suffix ? bytes.ends_with(affix) : bytes.starts_with(affix);
  if (!there) return self;
  const size_t rest = bytes.size() - affix.size();
  return Value(suffix ? cut(self.text_ptr(), 0, rest, interpreter.budget())
                      : cut(self.text_ptr(), affix.size(), bytes.size(), interpreter.budget()));
}

// Padding to a width: `left` of what is missing goes before the text.
template <int left_part>  // 0: none, 1: half, 2: all
Value justify_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("justify", arguments, {"width", "fillchar"}, 1);
  Budget& budget = interpreter.budget();
  const int64_t size = length(self, budget), width = given.integer(0, 0);
  if (width <= size) return self;
  const int64_t missing = width - size;
  // Python gives the odd space to the left where the width is odd.
  const int64_t half = missing / 2 + (missing & width & 1);
  const int64_t left = left_part == 0 ? 0 : left_part == 2 ? missing : half;
  const TextPtr fill = given[1] ? given[1]->text_ptr() : make_text(" ");
  TextBuilder out(budget);
  out.append(*repeat(*fill, left, budget));
  out.append(self.text());
  out.append(*repeat(*fill, missing - left, budget));
  return Value(out.take(self.text().markup));
}

Value zero_fill_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("zfill", arguments, {"width"}, 1);
  Budget& budget = interpreter.budget();
  const int64_t size = length(self, budget), width = given.integer(0, 0);
  if (width <= size) return self;
  const std::string& bytes = self.text().bytes;
  const size_t sign = !bytes.empty() && (bytes[0] == '-' || bytes[0] == '+');
  TextBuilder out(budget);
  out.append(self.text(), 0, sign);
  out.append(*repeat(*make_text("0"), width - size, budget));
  out.append(self.text(), sign, bytes.size());
  return Value(out.take());
}

Value unsupported(Interpreter&, const Value&, const Arguments&) {
  fail_unsupported("this string method is not supported in chat templates");
}

constexpr NamedMethod kMethods[] = {
    {"strip", strip_method<Side::kBoth>},
    {"lstrip", strip_method<Side::kLeft>},
    {"rstrip", strip_method<Side::kRight>},
    {"split", split_method<false>},
    {"rsplit", split_method<true>},
    {"splitlines", split_lines_method},
    {"partition", partition_method<false>},
    {"rpartition", partition_method<true>},
    {"replace", replace_method},
    {"lower", map_method<lower>},
    {"casefold", map_method<lower>},
    {"upper", map_method<upper>},
    {"capitalize", map_method<capitalize>},
    {"title", map_method<title_letters>},
    {"join", join_method},
    {"format", format_method},
    {"startswith", affix_method<false>},
    {"endswith", affix_method<true>},
    {"find", find_method<false, false>},
    {"rfind", find_method<true, false>},
    {"index", find_method<false, true>},
    {"rindex", find_method<true, true>},
    {"count", count_method},
    {"removeprefix", remove_affix_method<false>},
    {"removesuffix", remove_affix_method<true>},
    {"ljust", justify_method<0>},
    {"center", justify_method<1>},
    {"rjust", justify_method<2>},
    {"zfill", zero_fill_method},
    {"swapcase", unsupported},
    {"encode", unsupported},
    {"expandtabs", unsupported},
    {"format_map", unsupported},
    {"maketrans", unsupported},
    {"translate", unsupported},
};

}  // namespace

Method find_text_method(std::string_view name) {
  for (const NamedMethod& method : kMethods) {
    if (method.name == name) return method.run;
  }
  return find_text_question(name);
}

}  // namespace cohort::jinja
