// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer_pipeline.h"

#include "base/utf8.h"

namespace cohort {
namespace {

std::string replace_all(const ReplaceStep& step, const std::string& text) {
  std::vector<TextRange> matches;
  step.pattern.find_all(text, {0, text.size()}, matches);
  std::string out;
  size_t at = 0;
  for (const TextRange& match : matches) {
    out.append(text, at, match.begin - at);
    out += step.with;
    at = match.end;
  }
  out.append(text, at);
  return out;
}

std::string strip(const StripStep& step, std::string_view text) {
  while (step.left && !text.empty()) {
    const Utf8Char c = utf8_next(text);
    if (!is_white_space(c.code)) break;
    text.remove_prefix(c.bytes);
  }
  while (step.right && !text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && (uint8_t(text[begin]) & 0xc0) == 0x80) begin--;
    if (!is_white_space(utf8_next(text.substr(begin)).code)) break;
    text = text.substr(0, begin);
  }
  return std::string(text);
}

struct Normalize {
  std::string& text;
  std::string operator()(NormalForm form) const { return normalized(text, form); }
  std::string operator()(const PrependStep& step) const {
    return text.empty() ? std::string() : step.text + text;
  }
  std::string operator()(const ReplaceStep& step) const { return replace_all(step, text); }
  std::string operator()(const StripStep& step) const { return strip(step, text); }
};

// Valid UTF-8 made of a text that is not, and where the bounds of the ranges have moved to.
struct Repaired {
  std::string text;
  std::vector<TextRange> literal;
};

Repaired repair(std::string_view text, std::span<const TextRange> literal) {
  Repaired out;
  std::vector<size_t> moved(text.size() + 1);
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_next(text.substr(at));
    for (size_t i = 0; i < c.bytes; i++) moved[at + i] = out.text.size();
    out.text += c.kind == Utf8Char::Kind::valid ? text.substr(at, c.bytes) : kReplacementCharacter;
    at += c.bytes;
  }
  moved[text.size()] = out.text.size();
  for (const TextRange& range : literal)
    out.literal.push_back(
        {moved[std::min(range.begin, text.size())], moved[std::min(range.end, text.size())]});
  return out;
}

class PipelineTokenizer : public Tokenizer {
 public:
  explicit PipelineTokenizer(TokenizerParts parts) : parts_(std::move(parts)) {
    for (size_t i = 0; i < parts_.tokens.size(); i++)
      if (!parts_.tokens[i].text.empty()) ids_.emplace(parts_.tokens[i].text, TokenId(i));
  }

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options,
                              std::span<const TextRange> literal) const override {
    std::vector<TokenId> out;
    if (options.add_special) out = parts_.prefix;
    if (utf8_valid(text)) {
      encode_valid(text, options, literal, out);
    } else {
      const Repaired repaired = repair(text, literal);
      encode_valid(repaired.text, options, repaired.literal, out);
    }
    if (options.add_special) out.insert(out.end(), parts_.suffix.begin(), parts_.suffix.end());
    return out;
  }

  std::string token_bytes(TokenId id) const override {
    return known(id) ? parts_.tokens[size_t(id)].bytes : std::string();
  }

  std::string decode(std::span<const TokenId> ids, bool skip_special) const override {
    IncrementalDecoder decoder(*this, skip_special);
    std::string out;
    for (TokenId id : ids) out += decoder.push(id);
    return out + decoder.flush();
  }

  int vocab_size() const override { return int(parts_.tokens.size()); }
  bool is_control(TokenId id) const override {
    return known(id) && parts_.tokens[size_t(id)].control;
  }
  std::optional<TokenId> find(std::string_view token) const override {
    const auto found = ids_.find(token);
    return found == ids_.end() ? std::nullopt : std::optional<TokenId>(found->second);
  }
  std::optional<TokenId> bos() const override { return parts_.bos; }
  std::optional<TokenId> eos() const override { return parts_.eos; }
  const std::vector<TokenId>& end_tokens() const override { return parts_.end_tokens; }
  const std::optional<std::string>& chat_template() const override { return parts_.chat_template; }
  std::string description() const override { return parts_.description; }
  DecodeRules decode_rules() const override { return parts_.decode; }

 private:
  bool known(TokenId id) const { return id >= 0 && size_t(id) < parts_.tokens.size(); }

  void encode_valid(std::string_view text, const EncodeOptions& options,
                    std::span<const TextRange> literal, std::vector<TokenId>& out) const {
    const Bpe::ScratchPtr scratch = Bpe::make_scratch();
    size_t at = 0;
    for (const auto& match : parts_.raw_added.find_all(text, options.parse_special, literal)) {
      encode_plain(text.substr(at, match.range.begin - at), at == 0, *scratch, out);
      out.push_back(match.id);
      at = match.range.end;
    }
    encode_plain(text.substr(at), at == 0, *scratch, out);
  }

  // Text between added tokens; at_start: at the start of the whole input.
  void encode_plain(std::string_view text, bool at_start, Bpe::Scratch& scratch,
                    std::vector<TokenId>& out) const {
    if (text.empty()) return;
    std::string normal(text);
    for (const NormalizerStep& step : parts_.normalizers)
      normal = apply_step(step, std::move(normal));
    size_t at = 0;
    for (const auto& match : parts_.normalized_added.find_all(normal, false, {})) {
      encode_pieces(normal.substr(at, match.range.begin - at), at_start && at == 0, scratch, out);
      out.push_back(match.id);
      at = match.range.end;
    }
    encode_pieces(normal.substr(at), at_start && at == 0, scratch, out);
  }

  void encode_pieces(std::string text, bool at_start, Bpe::Scratch& scratch,
                     std::vector<TokenId>& out) const {
    if (text.empty()) return;
    const size_t size = text.size();
    PiecedText pieced{std::move(text), {{0, size}}, at_start};
    for (const PreTokenizerStep& step : parts_.steps) apply_step(step, pieced);
    for (const TextRange& piece : pieced.pieces)
      parts_.bpe->encode(std::string_view(pieced.text).substr(piece.begin, piece.end - piece.begin),
                         scratch, out);
  }

  const TokenizerParts parts_;
  std::unordered_map<std::string_view, TokenId> ids_;  // views of parts_.tokens
};

}  // namespace

std::string apply_step(const NormalizerStep& step, std::string text) {
  return std::visit(Normalize{text}, step);
}

std::unique_ptr<Tokenizer> make_tokenizer(TokenizerParts parts) {
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

}  // namespace cohort
