// SPDX-License-Identifier: Apache-2.0
// A tokenizer of bytes: token i < 256 is byte i; then the control tokens <bos> and <eos>.
#pragma once
#include "model/tokenizer.h"

namespace cohort {

class FakeTokenizer : public Tokenizer {
 public:
  static constexpr TokenId kBos = 256, kEos = 257;
  static constexpr int kVocab = 258;

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options,
                              std::span<const TextRange>) const override {
    std::vector<TokenId> ids;
    if (options.add_special) ids.push_back(kBos);
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::string token_bytes(TokenId id) const override {
    if (id >= 0 && id < 256) return std::string(1, static_cast<char>(id));
    return id == kBos ? "<bos>" : id == kEos ? "<eos>" : "";
  }
  std::string decode(std::span<const TokenId> ids, bool skip_special) const override {
    IncrementalDecoder decoder(*this, skip_special);
    std::string out;
    for (const TokenId id : ids) out += decoder.push(id);
    return out + decoder.flush();
  }
  int vocab_size() const override { return kVocab; }
  bool is_control(TokenId id) const override { return id >= 256; }
  std::optional<TokenId> find(std::string_view token) const override {
    if (token == "<bos>") return kBos;
    if (token == "<eos>") return kEos;
    return {};
  }
  std::optional<TokenId> bos() const override { return kBos; }
  std::optional<TokenId> eos() const override { return kEos; }
  const std::vector<TokenId>& end_tokens() const override { return ends_; }
  const std::optional<std::string>& chat_template() const override { return template_; }
  std::string description() const override { return "bytes"; }

 private:
  const std::vector<TokenId> ends_{kEos};
  const std::optional<std::string> template_;
};

}  // namespace cohort
