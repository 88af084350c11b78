// SPDX-License-Identifier: Apache-2.0
// Tokens that are cut out of the text before anything else looks at it: control tokens and other
// added ones. Where several match, the leftmost wins, then the longest.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer.h"

namespace cohort {

struct AddedToken {
  std::string text;
  TokenId id = 0;
  bool special = false;     // a control token
  bool normalized = false;  // looked for in the normalized text
  // Takes the spaces on its left or right with it; matches only where no word touches it.
  bool strip_left = false, strip_right = false, single_word = false;
};

class AddedTokens {
 public:
  struct Match {
    TextRange range;
    TokenId id;
  };

  void add(AddedToken token);
  bool empty() const { return tokens_.empty(); }

  // Matches in text, ascending. Control tokens count only if `parse_special`, and never where they
  // touch one of `literal` (ascending).
  std::vector<Match> find_all(std::string_view text, bool parse_special,
                              std::span<const TextRange> literal) const;

 private:
  struct Node {
    std::map<uint8_t, uint32_t> children;
    int token = -1;  // index into tokens_
  };
  // The longest token that starts at `begin` and may match there, or null.
  const AddedToken* longest_at(std::string_view text, size_t begin, bool parse_special,
                               std::span<const TextRange> literal) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_{1};
  std::array<bool, 256> first_{};  // bytes that some token begins with
};

}  // namespace cohort
