// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer_sentencepiece.h"

namespace cohort {
namespace {

std::optional<uint8_t> hex_digit(char c) {
  if (c >= '0' && c <= '9') return uint8_t(c - '0');
  if (c >= 'A' && c <= 'F') return uint8_t(c - 'A' + 10);
  return std::nullopt;
}

}  // namespace

std::string with_spaces(std::string_view token) {
  std::string out;
  for (size_t at = 0; at < token.size();) {
    const bool space = token.substr(at, kMetaSpace.size()) == kMetaSpace;
    out += space ? ' ' : token[at];
    at += space ? kMetaSpace.size() : 1;
  }
  return out;
}

std::optional<uint8_t> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const auto high = hex_digit(token[3]), low = hex_digit(token[4]);
  if (!high || !low) return std::nullopt;
  return uint8_t(*high << 4 | *low);
}

}  // namespace cohort
