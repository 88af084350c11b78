// SPDX-License-Identifier: Apache-2.0
// UTF-8 as Python sees it: strings are counted and cut in code points. Invalid bytes are passed
// through; a stray continuation byte counts as part of the character before it.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace cohort::jinja {

struct Decoded {
  char32_t value;  // U+FFFD where the bytes are invalid
  size_t length;   // bytes, at least 1
};
Decoded decode_utf8(std::string_view text, size_t at);
void append_utf8(char32_t value, std::string& out);

size_t count_characters(std::string_view text);
// Byte at which character `index` starts; text.size() past the end.
size_t character_offset(std::string_view text, size_t index);

bool is_space(char32_t value);      // what str.isspace() accepts
bool is_printable(char32_t value);  // what repr() does not escape
bool is_alphabetic(char32_t value);
bool is_digit(char32_t value);

void append_lower(char32_t value, std::string& out);
void append_upper(char32_t value, std::string& out);

}  // namespace cohort::jinja
