// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding of one piece of text. Two rules of merging: by rank (a list of pairs, as
// GPT-2 and tokenizer.json have it) and by score (any two neighbours whose concatenation is a
// token, the best score first, as SentencePiece has it). Both take the leftmost of equals. A piece
// of n characters takes O(n log n).
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "model/tokenizer.h"

namespace cohort {

struct BpeOptions {
  bool by_score = false;
  bool byte_fallback = false;      // characters without a token become tokens <0x00> to <0xFF>
  bool ignore_merges = false;      // a piece that is a token stays whole
  bool fuse_unknown = false;       // neighbouring unknown characters become one unknown token
  std::optional<TokenId> unknown;  // without one, unknown characters are left out
};

class Bpe {
 public:
  explicit Bpe(BpeOptions options) : options_(options) { bytes_.fill(-1); }

  // Building. Tokens first; a token that text must never become (control tokens) is not added.
  void add_token(std::string_view text, TokenId id, float score = 0);
  void add_byte_token(uint8_t byte, TokenId id) { bytes_[byte] = id; }
  // Earlier merges win. False where either part or the whole is no token.
  bool add_merge(std::string_view left, std::string_view right);
  // Call once after the last token where merging goes by score.
  void rank_scores();

  // Reused between calls by one thread, so that short pieces allocate nothing.
  struct Scratch;
  struct FreeScratch {
    void operator()(Scratch* scratch) const;
  };
  using ScratchPtr = std::unique_ptr<Scratch, FreeScratch>;
  static ScratchPtr make_scratch();

  void encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const;
  std::optional<TokenId> find(std::string_view text) const;

 private:
  struct Symbol;
  struct Merge {
    uint32_t rank;
    TokenId id;
  };
  struct Entry {
    TokenId id;
    float score;
    uint32_t rank = 0;  // of the score
  };
  struct HashPair {
    size_t operator()(uint64_t pair) const;
  };
  struct HashText {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  void symbols_of(std::string_view piece, Scratch& scratch) const;
  void merge_all(std::string_view piece, Scratch& scratch) const;
  void consider(std::string_view piece, Scratch& scratch, int left) const;
  std::optional<Merge> merge_of(std::string_view piece, const Symbol& left,
                                const Symbol& right) const;
  void emit(std::string_view piece, const Scratch& scratch, std::vector<TokenId>& out) const;
  bool emit_bytes(std::string_view text, std::vector<TokenId>& out) const;

  const BpeOptions options_;
  std::unordered_map<std::string, Entry, HashText, std::equal_to<>> tokens_;
  std::unordered_map<uint64_t, Merge, HashPair> merges_;  // by left id << 32 | right id
  std::array<TokenId, 256> bytes_;
  size_t longest_token_ = 0;
  uint32_t next_rank_ = 0;
};

}  // namespace cohort
