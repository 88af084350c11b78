// SPDX-License-Identifier: Apache-2.0
// UTF-8, with ill-formed bytes cut the way the Unicode standard recommends (section 3.9, "U+FFFD
// substitution of maximal subparts"), which is also what Python and Rust do.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace cohort {

struct Utf8Char {
  enum class Kind {
    valid,
    invalid,     // `bytes` bytes that can never become a character
    incomplete,  // the text ends within a character that more bytes could complete
  };
  Kind kind = Kind::invalid;
  char32_t code = 0xfffd;
  uint32_t bytes = 0;  // 1 to 4
};

inline constexpr std::string_view kReplacementCharacter = "\xef\xbf\xbd";  // U+FFFD

// The first character of a text that is not empty.
Utf8Char utf8_next(std::string_view text);
void utf8_append(std::string& out, char32_t code);
bool utf8_valid(std::string_view text);

}  // namespace cohort
