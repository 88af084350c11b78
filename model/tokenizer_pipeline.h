// SPDX-License-Identifier: Apache-2.0
// The one implementation of Tokenizer: added tokens, normalizers, pre-tokenizer steps, byte-pair
// encoding. The loaders (tokenizer_json.cc, tokenizer_gguf.cc) fill TokenizerParts.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "model/bpe.h"
#include "model/pretokenizer.h"
#include "model/tokenizer.h"
#include "model/tokenizer_added.h"
#include "model/unicode.h"

namespace cohort {

struct PrependStep {
  std::string text;
};
struct ReplaceStep {
  TextPattern pattern;
  std::string with;
};
struct StripStep {
  bool left = false, right = false;
};
using NormalizerStep = std::variant<NormalForm, PrependStep, ReplaceStep, StripStep>;

std::string apply_step(const NormalizerStep& step, std::string text);

struct TokenInfo {
  std::string text;   // as the vocabulary writes it
  std::string bytes;  // as it appears in running text
  bool control = false;
};

struct TokenizerParts {
  std::vector<TokenInfo> tokens;  // by id; ids that the vocabulary leaves out are empty
  AddedTokens raw_added;          // looked for in the text as it is
  AddedTokens normalized_added;   // looked for after the normalizers; never control tokens
  std::vector<NormalizerStep> normalizers;
  std::vector<PreTokenizerStep> steps;
  std::optional<Bpe> bpe;
  std::vector<TokenId> prefix, suffix;  // what add_special puts around a text
  DecodeRules decode;
  std::optional<TokenId> bos, eos;
  std::vector<TokenId> end_tokens;
  std::optional<std::string> chat_template;
  std::string description;
};

// Limits on what a vocabulary file may ask for.
inline constexpr size_t kMaxTokens = size_t(1) << 22;
inline constexpr size_t kMaxTokenBytes = size_t(1) << 16;

std::unique_ptr<Tokenizer> make_tokenizer(TokenizerParts parts);

}  // namespace cohort
