// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

// As a decoder that replaces what is ill-formed would show it.
std::string repaired(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Utf8Char c = utf8_next(text);
    if (c.kind == Utf8Char::Kind::valid)
      out += text.substr(0, c.bytes);
    else
      out += '?';
    text.remove_prefix(c.bytes);
  }
  return out;
}

TEST(Utf8, EveryScalarValueGoesThereAndBack) {
  for (char32_t code = 0; code <= 0x10ffff; code++) {
    std::string text;
    utf8_append(text, code);
    const Utf8Char c = utf8_next(text);
    const bool surrogate = code >= 0xd800 && code <= 0xdfff;
    ASSERT_EQ(c.kind == Utf8Char::Kind::valid, !surrogate) << uint32_t(code);
    if (surrogate) continue;
    ASSERT_EQ(c.code, code);
    ASSERT_EQ(c.bytes, text.size());
    for (size_t cut = 1; cut < text.size(); cut++)
      ASSERT_EQ(utf8_next(text.substr(0, cut)).kind, Utf8Char::Kind::incomplete) << uint32_t(code);
  }
}

// The examples of the Unicode standard, tables 3-8 to 3-11.
TEST(Utf8, CutsIllFormedTextIntoMaximalSubparts) {
  EXPECT_EQ(repaired("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41"), "????????A");
  EXPECT_EQ(repaired("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41"), "????????A");
  EXPECT_EQ(repaired("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42"), "?????A??B");
  EXPECT_EQ(repaired("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41"), "????A");
}

TEST(Utf8, ValidityIsOfTheWholeText) {
  EXPECT_TRUE(utf8_valid(""));
  EXPECT_TRUE(utf8_valid("a\xc3\xa9"));
  EXPECT_FALSE(utf8_valid("a\xc3"));
  EXPECT_FALSE(
      utf8_valid("\x80"
                 "a"));
}

}  // namespace
}  // namespace cohort
