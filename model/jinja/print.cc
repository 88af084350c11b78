// SPDX-License-Identifier: Apache-2.0
#include "model/jinja/print.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "model/jinja/unicode.h"

namespace cohort::jinja {

std::string print_double(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific);
  std::string text(buffer.data(), end.ptr);
  const size_t mark = text.find('e');
  const int exponent = std::stoi(text.substr(mark + 1));
  if (exponent < -4 || exponent >= 16) return text;
  const bool negative = text[0] == '-';
  std::string digits;
  for (const char c : text.substr(0, mark)) {
    if (is_digit(static_cast<unsigned char>(c))) digits += c;
  }
  if (exponent < 0) {
    digits = "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  } else {
    const size_t whole = static_cast<size_t>(exponent) + 1;
    if (digits.size() < whole) digits.append(whole - digits.size(), '0');
    digits.insert(whole, digits.size() == whole ? ".0" : ".");
  }
  return (negative ? "-" : "") + digits;
}

namespace {

std::string hex(char32_t value, size_t width) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out(width, '0');
  for (size_t i = width; i-- > 0; value >>= 4) out[i] = kDigits[value & 15];
  return out;
}

// One character as repr() shows it between `quote`s.
std::string repr_character(char32_t value, std::string_view bytes, char quote) {
  switch (value) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\\':
      return "\\\\";
    default:
      break;
  }
  if (value == static_cast<unsigned char>(quote)) return std::string("\\") + quote;
  if (is_printable(value) || value == 0xFFFD) return std::string(bytes);
  if (value < 0x100) return "\\x" + hex(value, 2);
  return value < 0x10000 ? "\\u" + hex(value, 4) : "\\U" + hex(value, 8);
}

// Walks over the literal and other stretches of a text: emit(begin, end, literal).
template <class Emit>
void for_each_stretch(const Text& text, const Emit& emit) {
  size_t at = 0;
  for (const TextRange& range : text.literal) {
    if (range.begin > at) emit(at, range.begin, false);
    emit(range.begin, range.end, true);
    at = range.end;
  }
  if (at < text.bytes.size()) emit(at, text.bytes.size(), false);
}

void append_repr_of_text(const Text& text, TextBuilder& out, Budget& budget) {
  budget.scan(text.bytes.size() * 16);
  const bool single = text.bytes.find('\'') != std::string::npos;
  const bool both = single && text.bytes.find('"') != std::string::npos;
  const char quote = single && !both ? '"' : '\'';
  out.append(std::string_view(&quote, 1));
  for_each_stretch(text, [&](size_t begin, size_t end, bool literal) {
    std::string shown;
    for (size_t at = begin; at < end;) {
      const Decoded c = decode_utf8(text.bytes, at);
      shown += repr_character(c.value, std::string_view(text.bytes).substr(at, c.length), quote);
      at += c.length;
    }
    out.append(shown, literal);
  });
  out.append(std::string_view(&quote, 1));
}

struct Brackets {
  const char *open, *close;
};

Brackets brackets_of(Flavor flavor) {
  switch (flavor) {
    case Flavor::kTuple:
      return {"(", ")"};
    case Flavor::kKeys:
      return {"dict_keys([", "])"};
    case Flavor::kValues:
      return {"dict_values([", "])"};
    case Flavor::kItems:
      return {"dict_items([", "])"};
    default:
      return {"[", "]"};
  }
}

void append_repr_of_sequence(const Sequence& list, TextBuilder& out, Budget& budget) {
  if (list.flavor == Flavor::kIterator)
    fail("an iterator cannot be printed; use the filter `list`");
  if (list.flavor == Flavor::kRange) fail("a range cannot be printed; use the filter `list`");
  const Brackets brackets = brackets_of(list.flavor);
  out.append(brackets.open);
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out.append(", ");
    append_repr(list.items[i], out, budget);
  }
  if (list.flavor == Flavor::kTuple && list.items.size() == 1) out.append(",");
  out.append(brackets.close);
}

void append_repr_of_dict(const Dict& dict, TextBuilder& out, Budget& budget) {
  out.append("{");
  bool first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!first) out.append(", ");
    first = false;
    append_repr(key, out, budget);
    out.append(": ");
    append_repr(value, out, budget);
  }
  out.append("}");
}

}  // namespace

void append_repr(const Value& value, TextBuilder& out, Budget& budget) {
  budget.step();
  if (value.is_text()) {
    if (value.text().markup) out.append("Markup(");
    append_repr_of_text(value.text(), out, budget);
    if (value.text().markup) out.append(")");
  } else if (value.is_undefined()) {
    out.append("Undefined");
  } else if (value.is_none()) {
    out.append("None");
  } else if (value.is_bool()) {
    out.append(value.integer() ? "True" : "False");
  } else if (value.is_integer()) {
    out.append(std::to_string(value.integer()));
  } else if (value.is_double()) {
    out.append(print_double(value.number()));
  } else if (const auto* list = value.sequence()) {
    append_repr_of_sequence(**list, out, budget);
  } else if (const auto* dict = value.dict()) {
    append_repr_of_dict(**dict, out, budget);
  } else {
    fail(std::string("a ") + value.type_name() + " cannot be printed");
  }
}

void append_text(const Value& value, TextBuilder& out, Budget& budget) {
  if (value.is_text()) {
    out.append(value.text());
  } else if (!value.is_undefined()) {
    append_repr(value, out, budget);
  }
}

TextPtr to_text(const Value& value, Budget& budget) {
  if (value.is_text()) return value.text_ptr();
  TextBuilder out(budget);
  append_text(value, out, budget);
  return out.take();
}

namespace {

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget)
      : style_(style), budget_(budget), out_(budget) {}

  void write(const Value& value) {
    budget_.step();
    if (value.is_text()) {
      write_text(value.text());
    } else if (const auto* list = value.sequence();
               list && ((*list)->flavor == Flavor::kList || (*list)->flavor == Flavor::kTuple)) {
      write_list(**list);
    } else if (const auto* dict = value.dict()) {
      write_dict(**dict);
    } else {
      out_.append(scalar(value));
    }
  }
  TextPtr take() { return out_.take(); }

 private:
  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is_bool()) return value.integer() ? "true" : "false";
    if (value.is_integer()) return std::to_string(value.integer());
    if (value.is_double()) {
      const double number = value.number();
      if (std::isnan(number)) return "NaN";
      if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
      return print_double(number);
    }
    fail(std::string("Object of type ") + value.type_name() + " is not JSON serializable");
  }

  std::string escaped(char32_t value, std::string_view bytes) const {
    switch (value) {
      case '"':
        return "\\\"";
      case '\\':
        return "\\\\";
      case '\n':
        return "\\n";
      case '\r':
        return "\\r";
      case '\t':
        return "\\t";
      case '\b':
        return "\\b";
      case '\f':
        return "\\f";
      default:
        break;
    }
    if (value < 0x20) return "\\u" + hex(value, 4);
    if (value < 0x80 || !style_.ascii) return std::string(bytes);
    if (value < 0x10000) return "\\u" + hex(value, 4);
    const char32_t rest = value - 0x10000;
    return "\\u" + hex(0xD800 + (rest >> 10), 4) + "\\u" + hex(0xDC00 + (rest & 0x3FF), 4);
  }

  void write_text(const Text& text) {
    budget_.scan(text.bytes.size() * 8);
    out_.append("\"");
    for_each_stretch(text, [&](size_t begin, size_t end, bool literal) {
      std::string shown;
      for (size_t at = begin; at < end;) {
        const Decoded c = decode_utf8(text.bytes, at);
        shown += escaped(c.value, std::string_view(text.bytes).substr(at, c.length));
        at += c.length;
      }
      out_.append(shown, literal);
    });
    out_.append("\"");
  }

  void open(const char* bracket) {
    out_.append(bracket);
    ++depth_;
  }
  void separate(bool first) {
    if (!first) out_.append(style_.item_separator);
    new_line();
  }
  void close(const char* bracket) {
    --depth_;
    new_line();
    out_.append(bracket);
  }
  void new_line() {
    if (!style_.indent) return;
    out_.append("\n");
    for (int i = 0; i < depth_; ++i) out_.append(*style_.indent);
  }

  void write_list(const Sequence& list) {
    if (list.items.empty()) return out_.append("[]");
    open("[");
    bool first = true;
    for (const Value& item : list.items) {
      separate(std::exchange(first, false));
      write(item);
    }
    close("]");
  }

  void write_dict(const Dict& dict) {
    if (dict.entries.empty()) return out_.append("{}");
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        return less(a->first, b->first, budget_);
      });
    }
    open("{");
    bool first = true;
    for (const auto* entry : entries) {
      separate(std::exchange(first, false));
      write_key(entry->first);
      out_.append(style_.key_separator);
      write(entry->second);
    }
    close("}");
  }

  void write_key(const Value& key) {
    if (key.is_text()) return write_text(key.text());
    if (key.sequence() || key.object()) {
      fail(std::string("keys must be str, int, float, bool or None, not ") + key.type_name());
    }
    out_.append("\"" + scalar(key) + "\"");
  }

  const JsonStyle& style_;
  Budget& budget_;
  TextBuilder out_;
  int depth_ = 0;
};

}  // namespace

TextPtr to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  JsonWriter writer(style, budget);
  writer.write(value);
  return writer.take();
}

}  // namespace cohort::jinja
