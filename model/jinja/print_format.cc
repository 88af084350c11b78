// SPDX-License-Identifier: Apache-2.0
// Format strings: `%` as in C and `{}` as in str.format, without nested fields, attributes or
// indices inside the braces.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "model/jinja/print.h"
#include "model/jinja/unicode.h"

namespace cohort::jinja {
namespace {

constexpr int kMaxWidth = 10'000;
constexpr int kMaxPrecision = 300;

struct Field {
  std::string fill = " ";
  char align = 0;  // '<', '>', '^', '=', 0: by type
  char sign = '-';
  bool alternate = false;
  char grouping = 0;
  int width = 0;
  std::optional<int> precision;
  char type = 0;
};

// Digits at `at`; advances it.
int parse_number(std::string_view text, size_t& at, int most) {
  int value = 0;
  while (at < text.size() && is_digit(static_cast<unsigned char>(text[at]))) {
    value = value * 10 + (text[at++] - '0');
    if (value > most) fail_limit("a width or precision in a format string is too large");
  }
  return value;
}

bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

Field parse_specification(std::string_view text) {
  Field field;
  size_t at = 0;
  const auto peek = [&] { return at < text.size() ? text[at] : '\0'; };
  if (!text.empty()) {
    const size_t fill = decode_utf8(text, 0).length;
    if (fill < text.size() && is_align(text[fill])) {
      field.fill = std::string(text.substr(0, fill));
      field.align = text[fill];
      at = fill + 1;
    } else if (is_align(text[0])) {
      field.align = text[at++];
    }
  }
  if (peek() == '+' || peek() == '-' || peek() == ' ') field.sign = text[at++];
  if (peek() == '#') field.alternate = text[at++];
  if (peek() == '0') {
    ++at;
    if (!field.align) {
      field.fill = "0";
      field.align = '=';
    }
  }
  field.width = parse_number(text, at, kMaxWidth);
  if (peek() == ',' || peek() == '_') field.grouping = text[at++];
  if (peek() == '.') {
    ++at;
    field.precision = parse_number(text, at, kMaxPrecision);
  }
  if (at < text.size()) field.type = text[at++];
  if (at != text.size()) fail("Invalid format specifier '" + std::string(text) + "'");
  return field;
}

std::string print_float(double value, char type, int precision, bool alternate) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  const std::string pattern = std::string("%") + (alternate ? "#" : "") + ".*" + type;
  std::string out(static_cast<size_t>(400 + precision), '\0');
  const int size = std::snprintf(out.data(), out.size(), pattern.c_str(), precision, value);
  out.resize(static_cast<size_t>(size));
  return out;
}

std::string print_integer(int64_t value, char type, bool alternate) {
  const bool negative = value < 0;
  uint64_t rest = negative ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const unsigned base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  const char* digits = type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string out;
  do {
    out += digits[rest % base];
    rest /= base;
  } while (rest > 0);
  if (alternate && base != 10) out += std::string(1, type) + "0";
  if (negative) out += '-';
  std::reverse(out.begin(), out.end());
  return out;
}

void group_thousands(std::string& number, char separator) {
  const size_t start = number[0] == '-' ? 1 : 0;
  size_t end = start;
  while (end < number.size() && is_digit(static_cast<unsigned char>(number[end]))) ++end;
  for (size_t at = end; at > start + 3; at -= 3) number.insert(at - 3, 1, separator);
}

// The text of a number, with its sign, before padding.
std::string print_number(const Value& value, const Field& field) {
  std::string out;
  const char type = field.type;
  const bool integral = type == 'd' || type == 'x' || type == 'X' || type == 'o' || type == 'b';
  if (integral || (!type && value.is_integer())) {
    if (!value.is_integer()) fail(std::string("Unknown format code '") + type + "' for 'float'");
    out = print_integer(value.integer(), type, field.alternate);
  } else if (!type) {
    out = field.precision ? print_float(value.number(), 'g', *field.precision, false)
                          : print_double(value.number());
  } else if (type == '%') {
    out = print_float(value.number() * 100, 'f', field.precision.value_or(6), false) + "%";
  } else if (std::string_view("eEfFgG").find(type) != std::string_view::npos) {
    const int precision = field.precision.value_or(6);
    out = print_float(value.number(), type, precision, field.alternate);
  } else {
    fail(std::string("Unknown format code '") + type + "' for '" + value.type_name() + "'");
  }
  if (field.grouping) group_thousands(out, field.grouping);
  if (out[0] != '-' && field.sign != '-') out.insert(0, 1, field.sign);
  return out;
}

TextPtr pad(const TextPtr& text, const Field& field, char usual_align, Budget& budget) {
  const size_t size = count_characters(text->bytes);
  const size_t width = static_cast<size_t>(field.width);
  if (size >= width) return text;
  const size_t missing = width - size;
  const char align = field.align ? field.align : usual_align;
  const size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  const std::string_view bytes = text->bytes;
  const bool signed_ = align == '=' && !bytes.empty() && (bytes[0] == '-' || bytes[0] == '+');
  TextBuilder out(budget);
  out.append(*text, 0, signed_ ? 1 : 0);
  for (size_t i = 0; i < left; ++i) out.append(field.fill);
  out.append(*text, signed_ ? 1 : 0, bytes.size());
  for (size_t i = left; i < missing; ++i) out.append(field.fill);
  return out.take(text->markup);
}

TextPtr truncated(const TextPtr& text, const Field& field, Budget& budget) {
  if (!field.precision) return text;
  const size_t end = character_offset(text->bytes, static_cast<size_t>(*field.precision));
  return cut(text, 0, end, budget);
}

TextPtr repr_of(const Value& value, Budget& budget) {
  TextBuilder out(budget);
  append_repr(value, out, budget);
  return out.take();
}

}  // namespace

TextPtr format_value(const Value& value, const std::string& specification, Budget& budget) {
  if (specification.empty()) return to_text(value, budget);
  const Field field = parse_specification(specification);
  if (value.is_number() && !(value.is_bool() && field.type == 0)) {
    return pad(make_text(print_number(value, field)), field, '>', budget);
  }
  if (!value.is_text() && !value.is_bool()) {
    fail(std::string("unsupported format string passed to ") + value.type_name());
  }
  if (field.type && field.type != 's') {
    fail(std::string("Unknown format code '") + field.type + "' for object of type 'str'");
  }
  return pad(truncated(to_text(value, budget), field, budget), field, '<', budget);
}

namespace {

// Reads the replacement fields of one str.format() pattern.
class BraceFormatter {
 public:
  BraceFormatter(const Text& pattern, const Arguments& arguments, Budget& budget)
      : pattern_(pattern), arguments_(arguments), budget_(budget), out_(budget) {}

  TextPtr run() {
    const std::string_view bytes = pattern_.bytes;
    size_t at = 0;
    while (at < bytes.size()) {
      const size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
      out_.append(pattern_, at, brace);
      if (brace == bytes.size()) break;
      if (brace + 1 < bytes.size() && bytes[brace + 1] == bytes[brace]) {
        out_.append(pattern_, brace, brace + 1);
        at = brace + 2;
        continue;
      }
      if (bytes[brace] == '}') fail("Single '}' encountered in format string");
      const size_t end = bytes.find('}', brace);
      if (end == std::string_view::npos) fail("expected '}' before end of string");
      replace_field(bytes.substr(brace + 1, end - brace - 1));
      at = end + 1;
    }
    return out_.take(pattern_.markup);
  }

 private:
  void replace_field(std::string_view field) {
    budget_.step();
    if (field.find('{') != std::string_view::npos) {
      fail_unsupported("nested fields in a format string are not supported");
    }
    const size_t colon = std::min(field.find(':'), field.size());
    const std::string specification(field.substr(std::min(colon + 1, field.size())));
    std::string_view name = field.substr(0, colon);
    char conversion = 0;
    if (name.size() >= 2 && name[name.size() - 2] == '!') {
      conversion = name.back();
      name.remove_suffix(2);
    }
    Value value = lookup(name);
    if (conversion == 'r') value = Value(repr_of(value, budget_));
    if (conversion == 's') value = Value(to_text(value, budget_));
    TextPtr text = format_value(value, specification, budget_);
    out_.append(*(pattern_.markup ? escape_html(text, budget_) : text));
  }

  Value lookup(std::string_view name) {
    if (name.find_first_of(".[") != std::string_view::npos) {
      fail_unsupported("attributes and indices in a format string are not supported");
    }
    size_t index = next_;
    if (name.empty()) {
      ++next_;
    } else if (is_digit(static_cast<unsigned char>(name[0]))) {
      size_t at = 0;
      index = static_cast<size_t>(parse_number(name, at, kMaxWidth));
    } else {
      for (const auto& [key, value] : arguments_.named) {
        if (key == name) return value;
      }
      fail("format() got no argument '" + std::string(name) + "'");
    }
    if (index >= arguments_.positional.size()) fail("Replacement index out of range in format()");
    return arguments_.positional[index];
  }

  const Text& pattern_;
  const Arguments& arguments_;
  Budget& budget_;
  TextBuilder out_;
  size_t next_ = 0;
};

// Reads the conversions of one `%` pattern.
class PercentFormatter {
 public:
  PercentFormatter(const Text& pattern, const Value& values, Budget& budget)
      : pattern_(pattern), values_(values), budget_(budget), out_(budget) {}

  TextPtr run() {
    const std::string_view bytes = pattern_.bytes;
    size_t at = 0;
    while (at < bytes.size()) {
      const size_t percent = std::min(bytes.find('%', at), bytes.size());
      out_.append(pattern_, at, percent);
      if (percent == bytes.size()) break;
      at = convert(percent + 1);
    }
    const auto* tuple = values_.sequence();
    const bool is_tuple = tuple && (*tuple)->flavor == Flavor::kTuple;
    const size_t given = is_tuple ? (*tuple)->items.size() : 1;
    if (next_ < given && (is_tuple || (!values_.dict() && !values_.sequence()))) {
      fail("not all arguments converted during string formatting");
    }
    return out_.take(pattern_.markup);
  }

 private:
  // The conversion that starts at `at`; returns where it ends.
  size_t convert(size_t at) {
    const std::string_view bytes = pattern_.bytes;
    budget_.step();
    std::optional<Value> named;
    if (at < bytes.size() && bytes[at] == '(') {
      const size_t end = bytes.find(')', at);
      if (end == std::string_view::npos) fail("incomplete format key");
      const auto* dict = values_.dict();
      if (!dict) fail("format requires a mapping");
      const Value* found = (*dict)->find(bytes.substr(at + 1, end - at - 1));
      if (!found) fail("the mapping has no such format key");
      named = *found;
      at = end + 1;
    }
    Field field;
    field.align = '>';
    for (; at < bytes.size() && std::string_view("-+ 0#").find(bytes[at]) != std::string_view::npos;
         ++at) {
      if (bytes[at] == '-') field.align = '<';
      if (bytes[at] == '+' || bytes[at] == ' ') field.sign = bytes[at];
      if (bytes[at] == '#') field.alternate = true;
      if (bytes[at] == '0' && field.align != '<') {
        field.fill = "0";
        field.align = '=';
      }
    }
    field.width = parse_number(bytes, at, kMaxWidth);
    if (at < bytes.size() && bytes[at] == '.')
      field.precision = parse_number(bytes, ++at, kMaxPrecision);
    if (at >= bytes.size()) fail("incomplete format");
    field.type = bytes[at];
    if (field.type == '%') {
      out_.append("%");
    } else {
      write(named ? *named : take(), field);
    }
    return at + 1;
  }

  Value take() {
    const auto* tuple = values_.sequence();
    if (tuple && (*tuple)->flavor == Flavor::kTuple) {
      if (next_ >= (*tuple)->items.size()) fail("not enough arguments for format string");
      return (*tuple)->items[next_++];
    }
    if (next_++ > 0) fail("not enough arguments for format string");
    return values_;
  }

  void write(const Value& value, Field field) {
    TextPtr text;
    if (field.type == 's' || field.type == 'r') {
      text = field.type == 's' ? to_text(value, budget_) : repr_of(value, budget_);
      text = truncated(text, field, budget_);
      if (field.align == '=') field.align = '>';
    } else {
      if (!value.is_number()) {
        fail(std::string("a number is required for '%") + field.type + "', not " +
             value.type_name());
      }
      if (field.type == 'i' || field.type == 'u') field.type = 'd';
      const bool truncates = field.type == 'd' && value.is_double();
      if (truncates && !(std::fabs(value.number()) < 9e18)) fail("the number is too large for %d");
      text = make_text(
          print_number(truncates ? Value(static_cast<int64_t>(value.number())) : value, field));
    }
    if (pattern_.markup) text = escape_html(text, budget_);
    out_.append(*pad(text, field, '>', budget_));
  }

  const Text& pattern_;
  const Value& values_;
  Budget& budget_;
  TextBuilder out_;
  size_t next_ = 0;
};

}  // namespace

TextPtr format_percent(const Text& pattern, const Value& values, Budget& budget) {
  return PercentFormatter(pattern, values, budget).run();
}

TextPtr format_braces(const Text& pattern, const Arguments& arguments, Budget& budget) {
  return BraceFormatter(pattern, arguments, budget).run();
}

}  // namespace cohort::jinja
