// SPDX-License-Identifier: Apache-2.0
// Text <-> token ids. Byte-level BPE (GPT-2 family) and SentencePiece-style BPE with byte fallback,
// read from a Hugging Face tokenizer.json or from the metadata of a GGUF file. Immutable after
// loading; every method may be called by any thread at the same time.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cohort {

class GgufFile;  // model/gguf.h

using TokenId = int32_t;

// A range of bytes of the input, [begin, end).
struct TextRange {
  size_t begin = 0, end = 0;
  friend bool operator==(const TextRange&, const TextRange&) = default;
};

struct EncodeOptions {
  // Control tokens written out in the text ("<|im_start|>") become their ids; else they are
  // ordinary text.
  bool parse_special = true;
  // Beginning and end tokens as the model's own settings ask for (as Hugging Face's
  // add_special_tokens=True does).
  bool add_special = true;
};

// How a sequence of tokens becomes text, beyond joining their bytes.
struct DecodeRules {
  bool strip_leading_space = false;  // SentencePiece's space at the very start
  // Ill-formed UTF-8 gives one U+FFFD per byte (as byte-fallback tokens do), not per maximal
  // subpart (as byte-level vocabularies do).
  bool replace_each_byte = false;
};

class Tokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> from_gguf(const GgufFile& file);
  // path of a tokenizer.json; tokenizer_config.json beside it is used where present (bos, eos,
  // chat template, add_bos_token).
  static Result<std::unique_ptr<Tokenizer>> from_json_file(const std::string& path);
  virtual ~Tokenizer() = default;

  // Invalid UTF-8 is never an error: such bytes are encoded as bytes or as U+FFFD, as the
  // reference does. `literal`: ascending ranges of the text in which control tokens are never
  // recognised (what users wrote inside a chat message); everything else about the split of the
  // text is as if they were not there.
  virtual std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options,
                                      std::span<const TextRange> literal = {}) const = 0;

  // The bytes that a token stands for, exactly as they appear in running text (SentencePiece: with
  // its leading space). Control tokens give their text. Out of range gives "".
  virtual std::string token_bytes(TokenId id) const = 0;
  // Whole-sequence decoding, as Hugging Face's decode(clean_up_tokenization_spaces=False): may
  // drop SentencePiece's leading space at the start. skip_special leaves control tokens out.
  virtual std::string decode(std::span<const TokenId> ids, bool skip_special) const = 0;

  virtual int vocab_size() const = 0;
  virtual bool is_control(TokenId id) const = 0;
  virtual std::optional<TokenId> find(std::string_view token) const = 0;
  virtual std::optional<TokenId> bos() const = 0;
  virtual std::optional<TokenId> eos() const = 0;
  // Every token that ends a turn: eos, and what generation_config.json or GGUF name beside it
  // (eot, eom).
  virtual const std::vector<TokenId>& end_tokens() const = 0;
  // Jinja source that came with the tokenizer, if any.
  virtual const std::optional<std::string>& chat_template() const = 0;
  // One line for people: "byte-level BPE, 49152 tokens, pre-tokenizer smollm".
  virtual std::string description() const = 0;
  virtual DecodeRules decode_rules() const { return {}; }
};

// Text of a stream of tokens, piece by piece: push() returns what can be shown for certain, and
// holds back the bytes of an unfinished UTF-8 sequence (at most 3); flush() returns the rest, with
// each byte that can no longer become a character replaced by U+FFFD. The concatenation equals
// decode() of all tokens. Control tokens are left out when skip_special is set.
class IncrementalDecoder {
 public:
  IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special);
  std::string push(TokenId id);
  std::string flush();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool at_start_ = true;
  std::string held_;
};

}  // namespace cohort
