// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer.h"

#include "base/utf8.h"

namespace cohort {
namespace {

void append_replacement(std::string& out, uint32_t bytes, const DecodeRules& rules) {
  for (uint32_t i = 0; i < (rules.replace_each_byte ? bytes : 1); i++) out += kReplacementCharacter;
}

}  // namespace

IncrementalDecoder::IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer), skip_special_(skip_special) {}

std::string IncrementalDecoder::push(TokenId id) {
  if (skip_special_ && tokenizer_->is_control(id)) return {};
  const DecodeRules rules = tokenizer_->decode_rules();
  std::string bytes = tokenizer_->token_bytes(id);
  if (at_start_ && !bytes.empty()) {
    at_start_ = false;
    if (rules.strip_leading_space && bytes[0] == ' ') bytes.erase(0, 1);
  }
  held_ += bytes;
  std::string out;
  size_t at = 0;
  while (at < held_.size()) {
    const std::string_view rest = std::string_view(held_).substr(at);
    const Utf8Char c = utf8_next(rest);
    if (c.kind == Utf8Char::Kind::incomplete) break;
    if (c.kind == Utf8Char::Kind::valid)
      out += rest.substr(0, c.bytes);
    else
      append_replacement(out, c.bytes, rules);
    at += c.bytes;
  }
  held_.erase(0, at);
  return out;
}

std::string IncrementalDecoder::flush() {
  std::string out;
  if (!held_.empty()) append_replacement(out, uint32_t(held_.size()), tokenizer_->decode_rules());
  held_.clear();
  return out;
}

}  // namespace cohort
