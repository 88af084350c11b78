// SPDX-License-Identifier: Apache-2.0
// Strings that remember which of their bytes came from messages. Every operation that can be
// followed byte by byte keeps that exactly; others mark their whole result.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/jinja/budget.h"
#include "model/tokenizer.h"

namespace cohort::jinja {

struct Text {
  std::string bytes;
  std::vector<TextRange> literal;  // ascending, disjoint, not adjacent, not empty
  bool markup = false;             // the result of `safe` or `escape`

  bool any_literal() const { return !literal.empty(); }
};
using TextPtr = std::shared_ptr<const Text>;

TextPtr make_text(std::string bytes, bool literal = false);

class TextBuilder {
 public:
  explicit TextBuilder(Budget& budget) : budget_(budget) {}

  void append(std::string_view bytes, bool literal = false);
  void append(const Text& text) { append(text, 0, text.bytes.size()); }
  void append(const Text& text, size_t begin, size_t end);  // bytes [begin, end) of text
  size_t size() const { return out_.bytes.size(); }
  TextPtr take(bool markup = false);

 private:
  void mark(size_t begin, size_t end);

  Budget& budget_;
  Text out_;
};

TextPtr cut(const TextPtr& text, size_t begin, size_t end, Budget& budget);
TextPtr concatenate(const Text& a, const Text& b, Budget& budget);
TextPtr repeat(const Text& text, int64_t times, Budget& budget);

enum class Side { kLeft, kRight, kBoth };
// Without `characters`: white space.
TextPtr strip(const TextPtr& text, Side side, const std::optional<std::string>& characters,
              Budget& budget);
// count < 0: all.
TextPtr replace(const Text& text, const Text& from, const Text& to, int64_t count, Budget& budget);
std::vector<TextPtr> split(const TextPtr& text, const std::string& separator, int64_t count,
                           bool from_right, Budget& budget);
std::vector<TextPtr> split_white_space(const TextPtr& text, int64_t count, bool from_right,
                                       Budget& budget);
std::vector<TextPtr> split_lines(const TextPtr& text, bool keep_ends, Budget& budget);
TextPtr join(const std::vector<TextPtr>& parts, const Text& separator, Budget& budget);
// Each character through `map`, which appends what replaces it.
TextPtr map_characters(const Text& text, void (*map)(char32_t, std::string&), Budget& budget);
TextPtr lower(const Text& text, Budget& budget);
TextPtr upper(const Text& text, Budget& budget);
TextPtr capitalize(const Text& text, Budget& budget);
// Capital at the start of each word. Words are runs of letters, or what white space, hyphens and
// opening brackets separate (as Jinja's filter has it).
enum class Words { kLetters, kSeparated };
TextPtr title(const Text& text, Words words, Budget& budget);
TextPtr escape_html(const TextPtr& text, Budget& budget);
TextPtr reverse(const Text& text, Budget& budget);

}  // namespace cohort::jinja
