// SPDX-License-Identifier: Apache-2.0
// Tokenizers in the metadata of GGUF files (ggml-org/ggml docs/gguf.md, "Tokenizer").
#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "model/gguf.h"
#include "model/pretokenizer_table.h"
#include "model/tokenizer_pipeline.h"
#include "model/tokenizer_sentencepiece.h"

namespace cohort {
namespace {

// Values of tokenizer.ggml.token_type.
enum class TokenType : int64_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6,
};

// Control tokens that end a turn under these names in every model that has them. Converted files
// often name only one of them as eos.
constexpr std::string_view kEndNames[] = {
    "<|eot_id|>",    "<|eom_id|>",    "<|im_end|>",
    "<|end|>",       "<|endoftext|>", "<|end_of_text|>",
    "<end_of_turn>", "<turn|>",       "<|END_OF_TURN_TOKEN|>",
};

class Loader {
 public:
  explicit Loader(const GgufFile& file) : file_(file) {}

  Result<std::unique_ptr<Tokenizer>> load() {
    COHORT_RETURN_IF_ERROR(choose_model());
    COHORT_RETURN_IF_ERROR(read_arrays());
    if (byte_level_) COHORT_RETURN_IF_ERROR(choose_pretokenizer());
    if (!byte_level_) set_up_sentencepiece();
    parts_.bpe.emplace(bpe_);
    COHORT_RETURN_IF_ERROR(add_tokens());
    COHORT_RETURN_IF_ERROR(by_score_ ? Status() : add_merges());
    if (by_score_) parts_.bpe->rank_scores();
    COHORT_RETURN_IF_ERROR(special_ids());
    find_end_tokens();
    if (const auto chat = file_.string("tokenizer.chat_template"))
      parts_.chat_template = std::string(*chat);
    parts_.description = concat(kind_, ", ", parts_.tokens.size(), " tokens",
                                pre_.empty() ? "" : ", pre-tokenizer " + pre_);
    return make_tokenizer(std::move(parts_));
  }

 private:
  Status error(const std::string& what) const {
    return invalid_argument(file_.path() + ": " + what);
  }

  Status choose_model() {
    const auto model = file_.string("tokenizer.ggml.model");
    if (!model) return error("has no tokenizer (key \"tokenizer.ggml.model\" is missing)");
    if (*model == "gpt2") {
      kind_ = "byte-level BPE";
      byte_level_ = true;
    } else if (*model == "llama") {
      kind_ = "SentencePiece BPE";
      by_score_ = true;
    } else if (*model == "gemma4") {
      kind_ = "BPE with byte fallback";
    } else {
      return unimplemented(concat(file_.path(), ": the tokenizer model \"", *model, "\" (",
                                  family(*model),
                                  ") is not supported; supported are gpt2 and llama (BPE)"));
    }
    return {};
  }

  static std::string_view family(std::string_view model) {
    if (model == "bert") return "WordPiece";
    if (model == "t5") return "unigram";
    if (model == "rwkv") return "greedy trie";
    return "unknown to this program";
  }

  Status read_arrays() {
    tokens_ = file_.strings("tokenizer.ggml.tokens");
    if (!tokens_ || tokens_->empty()) return error("key \"tokenizer.ggml.tokens\" is missing");
    if (tokens_->size() > kMaxTokens)
      return error(concat("has ", tokens_->size(), " tokens (", kMaxTokens, " allowed)"));
    types_ = file_.integers("tokenizer.ggml.token_type");
    if (types_ && types_->size() != tokens_->size())
      return error("key \"tokenizer.ggml.token_type\" has another length than the tokens");
    scores_ = file_.numbers("tokenizer.ggml.scores");
    if (!by_score_) return {};
    if (!scores_ || scores_->size() != tokens_->size())
      return error("key \"tokenizer.ggml.scores\" is missing or of another length than the tokens");
    if (!std::all_of(scores_->begin(), scores_->end(), [](double s) { return std::isfinite(s); }))
      return error("key \"tokenizer.ggml.scores\" holds a score that is not finite");
    return {};
  }

  Status choose_pretokenizer() {
    pre_ = std::string(file_.string("tokenizer.ggml.pre").value_or(""));
    if (pre_.empty()) {
      log_warning(file_.path() +
                  ": names no pre-tokenizer, so the default one is used; convert the model again "
                  "if answers look odd");
      pre_ = "default";
    }
    Result<NamedPreTokenizer> named = named_pretokenizer(pre_);
    if (!named.ok()) return named.status().annotate(file_.path());
    parts_.steps = std::move(named->steps);
    bpe_.ignore_merges = named->ignore_merges;
    add_bos_ = named->add_bos;
    return {};
  }

  void set_up_sentencepiece() {
    bpe_.by_score = by_score_;
    bpe_.byte_fallback = true;
    if (const auto unknown = token_id("tokenizer.ggml.unknown_token_id")) bpe_.unknown = *unknown;
    bpe_.fuse_unknown = !by_score_;
    const bool prefix = file_.boolean("tokenizer.ggml.add_space_prefix").value_or(by_score_);
    // A space goes before the text after every control token, not only at the start.
    if (prefix) parts_.normalizers.push_back(PrependStep{" "});
    parts_.normalizers.push_back(ReplaceStep{{std::string(" ")}, std::string(kMetaSpace)});
    parts_.decode = {.strip_leading_space = prefix, .replace_each_byte = true};
    add_bos_ = true;
    // Merges by rank never contain a line end next to anything else; cutting there keeps pieces
    // short.
    if (!by_score_) parts_.steps.push_back(lines());
  }

  static SplitStep lines() {
    Result<Regex> regex = Regex::compile("\\n+");
    return SplitStep{{std::move(regex).value()}, SplitBehavior::isolated, false};
  }

  Status add_tokens() {
    parts_.tokens.resize(tokens_->size());
    for (size_t i = 0; i < tokens_->size(); i++) {
      const std::string_view text = (*tokens_)[i];
      if (text.size() > kMaxTokenBytes)
        return error(
            concat("token ", i, " is ", text.size(), " bytes long (", kMaxTokenBytes, " allowed)"));
      const auto type = types_ ? TokenType((*types_)[i]) : TokenType::normal;
      add_token(TokenId(i), text, type);
    }
    return {};
  }

  void add_token(TokenId id, std::string_view text, TokenType type) {
    TokenInfo& token = parts_.tokens[size_t(id)];
    token.text = token.bytes = std::string(text);
    token.control = type == TokenType::control || type == TokenType::unknown;
    if (token.control || type == TokenType::user_defined) {
      if (!token.control && !byte_level_) token.bytes = with_spaces(text);
      parts_.raw_added.add({.text = token.bytes, .id = id, .special = token.control});
      return;
    }
    if (type == TokenType::unused) return;
    if (const std::optional<uint8_t> byte = byte_of_token(text); byte && !byte_level_) {
      token.bytes = std::string(1, char(*byte));
      parts_.bpe->add_byte_token(*byte, id);
      return;
    }
    if (byte_level_)
      token.bytes = bytes_of_characters(text).value_or(std::string(text));
    else
      token.bytes = with_spaces(text);
    if (!text.empty())
      parts_.bpe->add_token(text, id, by_score_ ? float((*scores_)[size_t(id)]) : 0);
  }

  Status add_merges() {
    const auto* merges = file_.strings("tokenizer.ggml.merges");
    if (!merges) return error("key \"tokenizer.ggml.merges\" is missing");
    for (size_t i = 0; i < merges->size(); i++) {
      const std::string_view merge = (*merges)[i];
      const size_t space = merge.find(' ', 1);
      if (space == std::string_view::npos)
        return error(concat("merge ", i, " is not two tokens with a space between"));
      // Merges into control tokens are dropped with the others that name no token.
      (void)parts_.bpe->add_merge(merge.substr(0, space), merge.substr(space + 1));
    }
    return {};
  }

  std::optional<TokenId> token_id(std::string_view key) const {
    const auto id = file_.integer(key);
    if (!id || *id < 0 || size_t(*id) >= tokens_->size()) return std::nullopt;
    return TokenId(*id);
  }

  Status special_ids() {
    parts_.bos = token_id("tokenizer.ggml.bos_token_id");
    parts_.eos = token_id("tokenizer.ggml.eos_token_id");
    const bool bos = file_.boolean("tokenizer.ggml.add_bos_token").value_or(add_bos_);
    const bool eos = file_.boolean("tokenizer.ggml.add_eos_token").value_or(false);
    if (bos && parts_.bos) parts_.prefix = {*parts_.bos};
    if (eos && parts_.eos) parts_.suffix = {*parts_.eos};
    return {};
  }

  void add_end_token(std::optional<TokenId> id) {
    std::vector<TokenId>& ends = parts_.end_tokens;
    if (id && std::find(ends.begin(), ends.end(), *id) == ends.end()) ends.push_back(*id);
  }

  void find_end_tokens() {
    add_end_token(parts_.eos);
    add_end_token(token_id("tokenizer.ggml.eot_token_id"));
    add_end_token(token_id("tokenizer.ggml.eom_token_id"));
    for (size_t i = 0; i < parts_.tokens.size(); i++) {
      const TokenInfo& token = parts_.tokens[i];
      if (token.control &&
          std::find(std::begin(kEndNames), std::end(kEndNames), token.text) != std::end(kEndNames))
        add_end_token(TokenId(i));
    }
  }

  const GgufFile& file_;
  std::string_view kind_;
  bool byte_level_ = false, by_score_ = false;
  std::string pre_;
  bool add_bos_ = false;
  BpeOptions bpe_;
  const std::vector<std::string_view>* tokens_ = nullptr;
  const std::vector<int64_t>* types_ = nullptr;
  const std::vector<double>* scores_ = nullptr;
  TokenizerParts parts_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_gguf(const GgufFile& file) {
  return Loader(file).load();
}

}  // namespace cohort
