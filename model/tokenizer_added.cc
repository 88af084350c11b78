// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer_added.h"

#include <algorithm>

#include "base/utf8.h"
#include "model/unicode.h"

namespace cohort {
namespace {

// The last character that ends at `end`.
char32_t character_before(std::string_view text, size_t end) {
  size_t begin = end;
  do {
    begin--;
  } while (begin > 0 && (uint8_t(text[begin]) & 0xc0) == 0x80);
  return utf8_next(text.substr(begin)).code;
}

bool stands_alone(std::string_view text, TextRange range) {
  if (range.begin > 0 && is_word_character(character_before(text, range.begin))) return false;
  return range.end == text.size() || !is_word_character(utf8_next(text.substr(range.end)).code);
}

size_t spaces_end(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Char c = utf8_next(text.substr(at));
    if (!is_white_space(c.code)) break;
    at += c.bytes;
  }
  return at;
}

size_t spaces_begin(std::string_view text, size_t at, size_t least) {
  while (at > least) {
    const char32_t c = character_before(text, at);
    if (!is_white_space(c)) break;
    std::string encoded;
    utf8_append(encoded, c);
    at -= encoded.size();
  }
  return std::max(at, least);
}

bool touches(TextRange range, std::span<const TextRange> literal) {
  const auto after = std::upper_bound(
      literal.begin(), literal.end(), range.begin,
      [](size_t begin, const TextRange& candidate) { return begin < candidate.end; });
  return after != literal.end() && after->begin < range.end;
}

}  // namespace

void AddedTokens::add(AddedToken token) {
  if (token.text.empty()) return;
  uint32_t node = 0;
  for (char c : token.text) {
    const auto [child, inserted] = nodes_[node].children.try_emplace(uint8_t(c), nodes_.size());
    node = child->second;
    if (inserted) nodes_.emplace_back();
  }
  first_[uint8_t(token.text[0])] = true;
  if (nodes_[node].token >= 0) {
    tokens_[size_t(nodes_[node].token)] = std::move(token);
    return;
  }
  nodes_[node].token = int(tokens_.size());
  tokens_.push_back(std::move(token));
}

const AddedToken* AddedTokens::longest_at(std::string_view text, size_t begin, bool parse_special,
                                          std::span<const TextRange> literal) const {
  const AddedToken* best = nullptr;
  uint32_t node = 0;
  for (size_t at = begin; at < text.size(); at++) {
    const auto child = nodes_[node].children.find(uint8_t(text[at]));
    if (child == nodes_[node].children.end()) break;
    node = child->second;
    if (nodes_[node].token < 0) continue;
    const AddedToken& token = tokens_[size_t(nodes_[node].token)];
    const TextRange range{begin, at + 1};
    if (token.special && (!parse_special || touches(range, literal))) continue;
    if (token.single_word && !stands_alone(text, range)) continue;
    best = &token;
  }
  return best;
}

std::vector<AddedTokens::Match> AddedTokens::find_all(std::string_view text, bool parse_special,
                                                      std::span<const TextRange> literal) const {
  std::vector<Match> matches;
  if (tokens_.empty()) return matches;
  size_t free_from = 0;  // end of the last match
  for (size_t at = 0; at < text.size();) {
    const AddedToken* token =
        first_[uint8_t(text[at])] ? longest_at(text, at, parse_special, literal) : nullptr;
    if (!token) {
      at++;
      continue;
    }
    TextRange range{at, at + token->text.size()};
    if (token->strip_left) range.begin = spaces_begin(text, range.begin, free_from);
    if (token->strip_right) range.end = spaces_end(text, range.end);
    matches.push_back({range, token->id});
    at = free_from = range.end;
  }
  return matches;
}

}  // namespace cohort
