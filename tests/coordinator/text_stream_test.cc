// SPDX-License-Identifier: Apache-2.0
#include "coordinator/text_stream.h"

#include <gtest/gtest.h>

#include "tests/support/fake_tokenizer.h"

namespace cohort {
namespace {

// True if the text is whole UTF-8 characters (Unicode 15, table 3-7, without the rarer bounds).
bool whole_characters(const std::string& text) {
  for (size_t i = 0; i < text.size();) {
    const unsigned char lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80    ? 1
                          : lead >= 0xf0 ? 4
                          : lead >= 0xe0 ? 3
                          : lead >= 0xc2 ? 2
                                         : 0;
    if (length == 0 || i + length > text.size()) return false;
    for (size_t k = 1; k < length; ++k)
      if ((text[i + k] & 0xc0) != 0x80) return false;
    i += length;
  }
  return true;
}

std::string run(const std::string& bytes, const SamplingOptions& options, bool* stopped) {
  const FakeTokenizer tokenizer;
  TextStream stream(tokenizer, options, FakeTokenizer::kBos);
  std::string out;
  for (const char c : bytes) {
    const std::string piece = stream.push(static_cast<unsigned char>(c), false);
    EXPECT_TRUE(whole_characters(piece)) << bytes;
    EXPECT_EQ(piece.find("\xef\xbf\xbd"), std::string::npos);
    out += piece;
    if (stream.stopped()) break;
  }
  if (!stream.stopped()) out += stream.flush();
  *stopped = stream.stopped();
  return out;
}

TEST(TextStream, E23_ByteTokensNeverSplitACharacter) {
  for (const std::string text : {"Grüße 你好 👩‍👩‍👧 end", "🦀", "a\u00e9"}) {
    bool stopped = false;
    EXPECT_EQ(run(text, {}, &stopped), text);
    EXPECT_FALSE(stopped);
  }
}

TEST(TextStream, E23_AnUnfinishedCharacterAtTheEndIsReplacedNotLost) {
  const FakeTokenizer tokenizer;
  TextStream stream(tokenizer, {}, std::nullopt);
  EXPECT_EQ(stream.push('a', false), "a");
  EXPECT_EQ(stream.push(0xf0, false), "");
  EXPECT_EQ(stream.push(0x9f, false), "");
  const std::string tail = stream.flush();
  EXPECT_TRUE(tail.starts_with("\xef\xbf\xbd")) << tail;
}

TEST(TextStream, E22_AStopStringOfManyByteTokensIsCut) {
  SamplingOptions options;
  options.stop = {"你好"};
  bool stopped = false;
  EXPECT_EQ(run("say 你好 now", options, &stopped), "say ");
  EXPECT_TRUE(stopped);
  options.include_stop_text = true;
  EXPECT_EQ(run("say 你好 now", options, &stopped), "say 你好");
}

TEST(TextStream, MinTokensComeBeforeStopStringsCount) {
  SamplingOptions options;
  options.stop = {"b"};
  options.min_tokens = 3;
  bool stopped = false;
  EXPECT_EQ(run("abcdbe", options, &stopped), "abcd");
  EXPECT_TRUE(stopped);
}

TEST(TextStream, TheTokenThatEndsIsNotShown) {
  const FakeTokenizer tokenizer;
  SamplingOptions options;
  options.skip_special_tokens = false;
  TextStream stream(tokenizer, options, std::nullopt);
  EXPECT_EQ(stream.push('a', false), "a");
  EXPECT_EQ(stream.push('z', true), "");
  EXPECT_EQ(stream.flush(), "");
}

}  // namespace
}  // namespace cohort
