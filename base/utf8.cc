// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

namespace cohort {
namespace {

// The range of the second byte and the length that a first byte asks for (Unicode table 3-7).
struct Lead {
  uint32_t bytes;
  uint8_t low, high;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xc2) return {0, 0, 0};
  if (byte < 0xe0) return {2, 0x80, 0xbf};
  if (byte == 0xe0) return {3, 0xa0, 0xbf};
  if (byte == 0xed) return {3, 0x80, 0x9f};
  if (byte < 0xf0) return {3, 0x80, 0xbf};
  if (byte == 0xf0) return {4, 0x90, 0xbf};
  if (byte < 0xf4) return {4, 0x80, 0xbf};
  if (byte == 0xf4) return {4, 0x80, 0x8f};
  return {0, 0, 0};
}

}  // namespace

Utf8Char utf8_next(std::string_view text) {
  const uint8_t first = uint8_t(text[0]);
  const Lead lead = lead_of(first);
  if (lead.bytes == 0) return {Utf8Char::Kind::invalid, 0xfffd, 1};
  if (lead.bytes == 1) return {Utf8Char::Kind::valid, first, 1};
  char32_t code = first & (0xffu >> (lead.bytes + 1));
  for (uint32_t i = 1; i < lead.bytes; i++) {
    if (i == text.size()) return {Utf8Char::Kind::incomplete, 0xfffd, i};
    const uint8_t byte = uint8_t(text[i]);
    const bool fits = i == 1 ? byte >= lead.low && byte <= lead.high : (byte & 0xc0) == 0x80;
    if (!fits) return {Utf8Char::Kind::invalid, 0xfffd, i};
    code = code << 6 | (byte & 0x3f);
  }
  return {Utf8Char::Kind::valid, code, lead.bytes};
}

void utf8_append(std::string& out, char32_t code) {
  if (code < 0x80) {
    out += char(code);
  } else if (code < 0x800) {
    out += char(0xc0 | code >> 6);
    out += char(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    out += char(0xe0 | code >> 12);
    out += char(0x80 | (code >> 6 & 0x3f));
    out += char(0x80 | (code & 0x3f));
  } else {
    out += char(0xf0 | code >> 18);
    out += char(0x80 | (code >> 12 & 0x3f));
    out += char(0x80 | (code >> 6 & 0x3f));
    out += char(0x80 | (code & 0x3f));
  }
}

bool utf8_valid(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char c = utf8_next(text);
    if (c.kind != Utf8Char::Kind::valid) return false;
    text.remove_prefix(c.bytes);
  }
  return true;
}

}  // namespace cohort
