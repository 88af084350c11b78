// SPDX-License-Identifier: Apache-2.0
#include "model/jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "model/jinja/unicode.h"

namespace cohort::jinja {
namespace {

// Python's universal new lines; one at the very end goes.
std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_name_start(char c) {
  return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c & 0x80);
}
bool is_digit_character(char c) { return c >= '0' && c <= '9'; }
bool is_name_part(char c) { return is_name_start(c) || is_digit_character(c); }

int digit_value(char c) {
  if (is_digit_character(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)), text_(source_) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) lex_data();
    add(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail_here(std::string message) {
    throw TemplateError{Code::kInvalidArgument, std::move(message), line_};
  }

  Token& add(TokenKind kind, std::string text = {}) {
    Token token;
    token.kind = kind;
    token.text = std::move(text);
    token.line = line_;
    tokens_.push_back(std::move(token));
    return tokens_.back();
  }

  bool looking_at(std::string_view what) const { return text_.substr(at_).starts_with(what); }

  // Moves on to `end`, counting lines, and remembers whether that begins a line.
  void advance_to(size_t end) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    if (end > at_) line_starting_ = text_[end - 1] == '\n';
    at_ = end;
  }

  void skip_space() {
    size_t end = at_;
    while (end < text_.size()) {
      const Decoded c = decode_utf8(text_, end);
      if (!is_space(c.value)) break;
      end += c.length;
    }
    advance_to(end);
  }

  // Text up to the next tag, then that tag.
  void lex_data() {
    size_t tag = at_;
    do {
      tag = text_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= text_.size()) {
        tag = text_.size();
        break;
      }
      const char kind = text_[tag + 1];
      if (kind == '{' || kind == '%' || kind == '#') break;
      ++tag;
    } while (true);
    const bool at_end = tag == text_.size();
    const char kind = at_end ? '\0' : text_[tag + 1];
    const char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
    add_data(tag, at_end, kind != '{', sign);
    if (at_end) return;
    advance_to(tag + 2);
    if (kind != '{' && (sign == '-' || sign == '+')) advance_to(at_ + 1);
    if (kind == '{' && sign == '-') advance_to(at_ + 1);
    if (kind == '#') return skip_comment();
    if (kind == '%' && lex_raw()) return;
    lex_tag(kind == '%');
  }

  void add_data(size_t end, bool at_end, bool strips_line, char sign) {
    std::string_view data = text_.substr(at_, end - at_);
    if (!at_end && sign == '-') {
      data = without_trailing_space(data);
    } else if (!at_end && sign != '+' && strips_line) {
      const size_t start = data.rfind('\n') + 1;  // 0 if there is none
      const bool blank = without_trailing_space(data.substr(start)).empty();
      if ((start > 0 || line_starting_) && blank) data = data.substr(0, start);
    }
    if (!data.empty()) add(TokenKind::kData, std::string(data));
    advance_to(end);
  }

  static std::string_view without_trailing_space(std::string_view data) {
    while (!data.empty()) {
      size_t start = data.size() - 1;
      while (start > 0 && (data[start] & 0xC0) == 0x80) --start;
      if (!is_space(decode_utf8(data, start).value)) break;
      data = data.substr(0, start);
    }
    return data;
  }

  void skip_comment() {
    const size_t end = text_.find("#}", at_);
    if (end == std::string_view::npos) fail_here("Missing end of comment tag");
    const char sign = end > at_ ? text_[end - 1] : '\0';
    advance_to(end + 2);
    finish_block(sign);
  }

  // After the closing delimiter of a block or comment that `sign` precedes.
  void finish_block(char sign) {
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && at_ < text_.size() && text_[at_] == '\n') {
      advance_to(at_ + 1);
    }
  }

  // `at` after optional blanks, a word, optional blanks and a closing delimiter; 0 if it is not so.
  size_t match_block(size_t at, std::string_view word, char& sign) const {
    while (at < text_.size() && is_space(static_cast<unsigned char>(text_[at]))) ++at;
    if (!text_.substr(at).starts_with(word)) return 0;
    at += word.size();
    while (at < text_.size() && is_space(static_cast<unsigned char>(text_[at]))) ++at;
    sign = at < text_.size() ? text_[at] : '\0';
    if (sign == '-' || sign == '+') ++at;
    return text_.substr(at).starts_with("%}") ? at + 2 : 0;
  }

  // {% raw %}: what follows is data up to {% endraw %}.
  bool lex_raw() {
    char sign = 0;
    const size_t start = match_block(at_, "raw", sign);
    if (start == 0 || sign == '+') return false;
    advance_to(start);
    if (sign == '-') skip_space();
    for (size_t tag = text_.find("{%", at_); tag != std::string_view::npos;
         tag = text_.find("{%", tag + 2)) {
      const char open = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
      const size_t inside = tag + (open == '-' || open == '+' ? 3 : 2);
      const size_t end = match_block(inside, "endraw", sign);
      if (end == 0) continue;
      add_data(tag, false, true, open);
      advance_to(end);
      finish_block(sign);
      return true;
    }
    fail_here("Missing end of raw directive");
  }

  void lex_tag(bool block) {
    add(block ? TokenKind::kBlockBegin : TokenKind::kOutputBegin);
    std::string open;  // brackets
    const std::string_view close = block ? "%}" : "}}";
    while (true) {
      skip_space();
      if (at_ >= text_.size()) fail_here("unexpected end of template inside a tag");
      const char c = text_[at_];
      const bool sign = c == '-' || (block && c == '+');
      if (open.empty() &&
          (looking_at(close) || (sign && text_.substr(at_ + 1).starts_with(close)))) {
        add(block ? TokenKind::kBlockEnd : TokenKind::kOutputEnd);
        advance_to(at_ + close.size() + (sign ? 1 : 0));
        if (block) return finish_block(sign ? c : '\0');
        if (sign) skip_space();
        return;
      }
      lex_token(open);
    }
  }

  void lex_token(std::string& open) {
    const char c = text_[at_];
    if (c == '"' || c == '\'') return lex_string(c);
    if (is_digit_character(c)) return lex_number();
    if (is_name_start(c)) {
      size_t end = at_;
      while (end < text_.size() && is_name_part(text_[end])) ++end;
      add(TokenKind::kName, std::string(text_.substr(at_, end - at_)));
      return advance_to(end);
    }
    for (const std::string_view op : {"//", "**", "==", "!=", ">=", "<="}) {
      if (looking_at(op)) {
        add(TokenKind::kOperator, std::string(op));
        return advance_to(at_ + 2);
      }
    }
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos) {
      fail_here(std::string("unexpected char '") + c + "'");
    }
    balance(c, open);
    add(TokenKind::kOperator, std::string(1, c));
    advance_to(at_ + 1);
  }

  void balance(char c, std::string& open) {
    if (c == '(') open += ')';
    if (c == '[') open += ']';
    if (c == '{') open += '}';
    if (c != ')' && c != ']' && c != '}') return;
    if (open.empty()) fail_here(std::string("unexpected '") + c + "'");
    if (open.back() != c) {
      fail_here(std::string("unexpected '") + c + "', expected '" + open.back() + "'");
    }
    open.pop_back();
  }

  // Digits of `base` with single underscores between them, from `at`.
  size_t digits_end(size_t at, int base) const {
    while (at < text_.size()) {
      if (text_[at] == '_' && at + 1 < text_.size() && digit_value(text_[at + 1]) < base) ++at;
      if (digit_value(text_[at]) >= base) break;
      ++at;
    }
    return at;
  }

  void lex_number() {
    const char second = at_ + 1 < text_.size() ? static_cast<char>(text_[at_ + 1] | 0x20) : '\0';
    if (text_[at_] == '0' && (second == 'x' || second == 'o' || second == 'b')) {
      const int base = second == 'x' ? 16 : second == 'o' ? 8 : 2;
      return add_integer(at_ + 2, digits_end(at_ + 2, base), base);
    }
    const size_t whole = digits_end(at_, 10);
    size_t end = whole;
    const bool after_dot = !tokens_.empty() && tokens_.back().is_operator(".");
    const auto digit_at = [&](size_t i) {
      return i < text_.size() && is_digit_character(text_[i]);
    };
    if (!after_dot && end < text_.size() && text_[end] == '.' && digit_at(end + 1)) {
      end = digits_end(end + 1, 10);
    }
    if (!after_dot && end < text_.size() && (text_[end] | 0x20) == 'e') {
      const size_t sign =
          end + 1 < text_.size() && (text_[end + 1] == '+' || text_[end + 1] == '-');
      if (digit_at(end + 1 + sign)) end = digits_end(end + 1 + sign, 10);
    }
    if (end == whole) return add_integer(at_, end, 10);
    add_float(end);
  }

  std::string without_underscores(size_t begin, size_t end) const {
    std::string digits(text_.substr(begin, end - begin));
    std::erase(digits, '_');
    return digits;
  }

  void add_integer(size_t begin, size_t end, int base) {
    const std::string digits = without_underscores(begin, end);
    int64_t value = 0;
    const auto [stop, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (error != std::errc() || stop != digits.data() + digits.size()) {
      fail_here("an integer in the template is malformed or beyond 64 bits");
    }
    add(TokenKind::kInteger, digits).integer = value;
    advance_to(end);
  }

  void add_float(size_t end) {
    const std::string digits = without_underscores(at_, end);
    const double value = std::strtod(digits.c_str(), nullptr);  // too large: infinity
    add(TokenKind::kFloat, digits).number = value;
    advance_to(end);
  }

  void lex_string(char quote) {
    std::string value;
    size_t at = at_ + 1;
    for (; at < text_.size() && text_[at] != quote; ++at) {
      if (text_[at] != '\\') {
        value += text_[at];
      } else if (++at < text_.size()) {
        at = unescape(at, value);
      }
    }
    if (at >= text_.size()) fail_here("a string in the template has no end");
    add(TokenKind::kString, std::move(value));
    advance_to(at + 1);
  }

  // The escape whose letter is at `at`; returns the index of its last character.
  size_t unescape(size_t at, std::string& value) {
    static constexpr std::string_view kLetters = "abfnrtv\\'\"", kValues = "\a\b\f\n\r\t\v\\'\"";
    const char c = text_[at];
    if (const size_t simple = kLetters.find(c); simple != std::string_view::npos) {
      value += kValues[simple];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      return unescape_number(at + 1, c == 'x' ? 2 : c == 'u' ? 4 : 8, value);
    } else if (c >= '0' && c <= '7') {
      char32_t code = 0;
      size_t end = at;
      for (; end < text_.size() && end < at + 3 && digit_value(text_[end]) < 8; ++end) {
        code = code * 8 + static_cast<char32_t>(digit_value(text_[end]));
      }
      append_utf8(code, value);
      return end - 1;
    } else if (c == 'N') {
      fail_here("escapes with the name of a character are not supported");
    } else if (c != '\n') {
      value += '\\';
      value += c;
    }
    return at;
  }

  size_t unescape_number(size_t at, size_t digits, std::string& value) {
    char32_t code = 0;
    for (size_t i = 0; i < digits; ++i) {
      const int digit = at + i < text_.size() ? digit_value(text_[at + i]) : 99;
      if (digit >= 16) fail_here("truncated escape in a string");
      code = code * 16 + static_cast<char32_t>(digit);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      fail_here("an escape in a string names no character");
    }
    append_utf8(code, value);
    return at + digits - 1;
  }

  std::string source_;
  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace cohort::jinja
