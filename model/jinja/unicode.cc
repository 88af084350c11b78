// SPDX-License-Identifier: Apache-2.0
#include "model/jinja/unicode.h"

#include <unicode/uchar.h>
#include <unicode/ustring.h>

#include <algorithm>
#include <array>

namespace cohort::jinja {
namespace {

bool continues(unsigned char byte) { return (byte & 0xC0) == 0x80; }

using CaseMapping = int32_t (*)(UChar*, int32_t, const UChar*, int32_t, const char*, UErrorCode*);

// Full mapping in no language's own way.
void append_mapped(CaseMapping mapping, char32_t value, std::string& out) {
  std::array<UChar, 2> in;
  std::array<UChar, 16> mapped;
  int32_t in_size = 0, size = 0;
  UErrorCode error = U_ZERO_ERROR;
  const auto code = static_cast<UChar32>(value);
  u_strFromUTF32(in.data(), in.size(), &in_size, &code, 1, &error);
  const int32_t length = mapping(mapped.data(), mapped.size(), in.data(), in_size, "", &error);
  std::array<char, 64> utf8;
  u_strToUTF8(utf8.data(), utf8.size(), &size, mapped.data(), length, &error);
  if (U_FAILURE(error)) return append_utf8(value, out);
  out.append(utf8.data(), static_cast<size_t>(size));
}

}  // namespace

Decoded decode_utf8(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
  if (length == 1 || lead >= 0xF8 || at + length > text.size()) return {0xFFFD, 1};
  char32_t value = lead & (0x7F >> length);
  for (size_t i = 1; i < length; ++i) {
    if (!continues(byte(i))) return {0xFFFD, 1};
    value = value << 6 | (byte(i) & 0x3F);
  }
  if (value > 0x10FFFF) return {0xFFFD, 1};
  return {value, length};
}

void append_utf8(char32_t value, std::string& out) {
  if (value < 0x80) {
    out += static_cast<char>(value);
    return;
  }
  const int extra = value < 0x800 ? 1 : value < 0x10000 ? 2 : 3;
  const unsigned lead = extra == 1 ? 0xC0 : extra == 2 ? 0xE0 : 0xF0;
  out += static_cast<char>(lead | value >> (6 * extra));
  for (int i = extra - 1; i >= 0; --i) {
    out += static_cast<char>(0x80 | (value >> (6 * i) & 0x3F));
  }
}

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return !continues(static_cast<unsigned char>(c)); }));
}

size_t character_offset(std::string_view text, size_t index) {
  for (size_t at = 0; at < text.size(); ++at) {
    if (continues(static_cast<unsigned char>(text[at]))) continue;
    if (index == 0) return at;
    --index;
  }
  return text.size();
}

bool is_space(char32_t value) {
  if (value < 0x80)
    return value == ' ' || (value >= 9 && value <= 13) || (value >= 28 && value <= 31);
  return value == 0x85 || value == 0xA0 || value == 0x1680 ||
         (value >= 0x2000 && value <= 0x200A) || value == 0x2028 || value == 0x2029 ||
         value == 0x202F || value == 0x205F || value == 0x3000;
}

bool is_printable(char32_t value) {
  if (value < 0x80) return value >= 0x20 && value < 0x7F;
  // Unassigned, control, format, private and surrogate code points, and separators.
  constexpr uint32_t kHidden = U_GC_C_MASK | U_GC_Z_MASK;
  return (U_MASK(u_charType(static_cast<UChar32>(value))) & kHidden) == 0;
}

bool is_alphabetic(char32_t value) {
  if (value < 0x80) return (value >= 'a' && value <= 'z') || (value >= 'A' && value <= 'Z');
  return (U_MASK(u_charType(static_cast<UChar32>(value))) & U_GC_L_MASK) != 0;
}

bool is_digit(char32_t value) { return value >= '0' && value <= '9'; }

void append_lower(char32_t value, std::string& out) {
  if (value < 0x80) {
    out += static_cast<char>(value >= 'A' && value <= 'Z' ? value + 32 : value);
  } else {
    append_mapped(u_strToLower, value, out);
  }
}

void append_upper(char32_t value, std::string& out) {
  if (value < 0x80) {
    out += static_cast<char>(value >= 'a' && value <= 'z' ? value - 32 : value);
  } else {
    append_mapped(u_strToUpper, value, out);
  }
}

}  // namespace cohort::jinja
