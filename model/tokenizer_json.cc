// SPDX-License-Identifier: Apache-2.0
// Hugging Face's tokenizer.json: the vocabulary, added tokens, post-processor and decoder.
#include "model/tokenizer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "model/tokenizer_json_config.h"
#include "model/tokenizer_sentencepiece.h"

namespace cohort {
namespace {

using nlohmann::json;

// Ids that a vocabulary may leave out: bounds the memory that one absurd id asks for.
constexpr size_t kMaxUnusedIds = 1 << 16;

std::optional<TokenId> token_id(const json& node) {
  if (!node.is_number_integer()) return std::nullopt;
  if (node.is_number_unsigned() && node.get<uint64_t>() >= kMaxTokens) return std::nullopt;
  const int64_t id = node.get<int64_t>();
  if (id < 0 || id >= int64_t(kMaxTokens)) return std::nullopt;
  return TokenId(id);
}

class Loader {
 public:
  explicit Loader(const TokenizerFiles& files) : files_(files) {}

  Result<std::unique_ptr<Tokenizer>> load() {
    root_ = json::parse(files_.tokenizer, nullptr, false);
    if (!root_.is_object()) return invalid_argument("not a JSON object");
    COHORT_ASSIGN_OR_RETURN(parts_.normalizers,
                            parse_normalizers(json_member(root_, "normalizer")));
    COHORT_ASSIGN_OR_RETURN(parts_.steps, parse_pretokenizers(json_member(root_, "pre_tokenizer")));
    COHORT_RETURN_IF_ERROR(decoder(json_member(root_, "decoder"), 0));
    COHORT_RETURN_IF_ERROR(vocabulary());
    COHORT_RETURN_IF_ERROR(added_tokens());
    COHORT_RETURN_IF_ERROR(model());
    COHORT_RETURN_IF_ERROR(merges());
    COHORT_RETURN_IF_ERROR(post_processor(json_member(root_, "post_processor"), 0));
    COHORT_RETURN_IF_ERROR(apply_configs(files_, parts_));
    parts_.description = concat(byte_level_ ? "byte-level BPE, " : "BPE with byte fallback, ",
                                parts_.tokens.size(), " tokens, from tokenizer.json");
    return make_tokenizer(std::move(parts_));
  }

 private:
  // Which bytes tokens stand for, and what is stripped.
  Status decoder(const json& node, int depth) {
    if (depth > 8) return invalid_argument("decoders within decoders within decoders");
    const std::string type = json_string(node, "type");
    if (type == "Sequence") {
      for (const json& step : json_member(node, "decoders"))
        COHORT_RETURN_IF_ERROR(decoder(step, depth + 1));
    } else if (type == "ByteLevel") {
      byte_level_ = true;
    } else if (type == "ByteFallback") {
      parts_.decode.replace_each_byte = true;
    } else if (type == "Metaspace") {
      meta_space_ = true;
      parts_.decode.strip_leading_space =
          json_string(node, "prepend_scheme", "always") != "never" &&
          json_bool(node, "add_prefix_space", true);
    } else if (type == "Replace") {
      if (json_string(json_member(node, "pattern"), "String") != kMetaSpace ||
          json_string(node, "content") != " ")
        return unimplemented("a Replace decoder other than of U+2581 by a space");
      meta_space_ = true;
    } else if (type == "Strip") {
      const json& start = json_member(node, "start");
      const json& stop = json_member(node, "stop");
      if (json_string(node, "content") != " " || (stop.is_number() && stop != 0) ||
          (start.is_number() && start != 0 && start != 1))
        return unimplemented("a Strip decoder other than of one leading space");
      parts_.decode.strip_leading_space = start == 1;
    } else if (type != "Fuse") {
      return unimplemented("decoder \"" + (node.is_null() ? "null" : type) + "\"");
    }
    return {};
  }

  Status vocabulary() {
    const json& model = json_member(root_, "model");
    // Old files leave the type out.
    const std::string type = json_string(model, "type", "BPE");
    if (type != "BPE")
      return unimplemented("the tokenizer model \"" + type + "\" is not supported; BPE is");
    const json& vocab = json_member(model, "vocab");
    if (!vocab.is_object() || vocab.empty()) return invalid_argument("model.vocab is missing");
    if (vocab.size() > kMaxTokens) return invalid_argument("model.vocab has too many tokens");
    for (const auto& [text, id_node] : vocab.items()) {
      const std::optional<TokenId> id = token_id(id_node);
      if (!id || size_t(*id) > vocab.size() + kMaxUnusedIds || text.size() > kMaxTokenBytes)
        return invalid_argument("model.vocab has a bad token or id: " + text.substr(0, 80));
      set_token(*id, text, false);
    }
    return {};
  }

  void set_token(TokenId id, const std::string& text, bool control) {
    if (size_t(id) >= parts_.tokens.size()) parts_.tokens.resize(size_t(id) + 1);
    parts_.tokens[size_t(id)] = {text, bytes_of(text), control};
    if (control) controls_.insert(text);
  }

  std::string bytes_of(const std::string& text) const {
    if (byte_level_) return bytes_of_characters(text).value_or(text);
    if (parts_.decode.replace_each_byte)
      if (const std::optional<uint8_t> byte = byte_of_token(text))
        return std::string(1, char(*byte));
    return meta_space_ ? with_spaces(text) : text;
  }

  Status added_tokens() {
    const json& list = json_member(root_, "added_tokens");
    if (list.is_null()) return {};
    if (!list.is_array()) return invalid_argument("added_tokens is no list");
    for (const json& node : list) {
      const std::optional<TokenId> id = token_id(json_member(node, "id"));
      const std::string text = json_string(node, "content");
      if (!id || size_t(*id) > parts_.tokens.size() + kMaxUnusedIds || text.empty() ||
          text.size() > kMaxTokenBytes)
        return invalid_argument("added_tokens has a token without an id or content");
      add_added({.text = text,
                 .id = *id,
                 .special = json_bool(node, "special", false),
                 .normalized = json_bool(node, "normalized", true),
                 .strip_left = json_bool(node, "lstrip", false),
                 .strip_right = json_bool(node, "rstrip", false),
                 .single_word = json_bool(node, "single_word", false)});
    }
    return {};
  }

  void add_added(AddedToken token) {
    set_token(token.id, token.text, token.special);
    // Control tokens are always looked for in the text as it is: the ranges in which they must not
    // be found are ranges of that text.
    if (token.special || !token.normalized) return parts_.raw_added.add(std::move(token));
    for (const NormalizerStep& step : parts_.normalizers)
      token.text = apply_step(step, std::move(token.text));
    parts_.tokens[size_t(token.id)].bytes = bytes_of(token.text);
    parts_.normalized_added.add(std::move(token));
  }

  Status model() {
    const json& model = json_member(root_, "model");
    const json& dropout = json_member(model, "dropout");
    if (dropout.is_number() && dropout != 0) return unimplemented("BPE dropout");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (!json_string(model, key).empty()) return unimplemented(concat("BPE with ", key));
    BpeOptions options;
    options.byte_fallback = json_bool(model, "byte_fallback", false);
    options.ignore_merges = json_bool(model, "ignore_merges", false);
    options.fuse_unknown = json_bool(model, "fuse_unk", false);
    const std::string unknown = json_string(model, "unk_token");
    parts_.bpe.emplace(options_with_unknown(options, unknown));
    for (size_t i = 0; i < parts_.tokens.size(); i++) {
      const TokenInfo& token = parts_.tokens[i];
      if (token.text.empty() || token.control) continue;
      if (const auto byte = byte_of_token(token.text); byte && options.byte_fallback)
        parts_.bpe->add_byte_token(*byte, TokenId(i));
      if (json_member(model, "vocab").contains(token.text))
        parts_.bpe->add_token(token.text, TokenId(i));
    }
    return {};
  }

  BpeOptions options_with_unknown(BpeOptions options, const std::string& unknown) const {
    const json& id =
        json_member(json_member(json_member(root_, "model"), "vocab"), unknown.c_str());
    if (!unknown.empty()) options.unknown = token_id(id);
    return options;
  }

  Status merges() {
    const json& list = json_member(json_member(root_, "model"), "merges");
    if (!list.is_array()) return invalid_argument("model.merges is missing");
    for (const json& merge : list) {
      std::string left, right;
      if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        left = merge[0].get<std::string>();
        right = merge[1].get<std::string>();
      } else if (merge.is_string()) {
        const std::string text = merge.get<std::string>();
        const size_t space = text.find(' ');
        if (space == std::string::npos) return invalid_argument("a merge of one token: " + text);
        left = text.substr(0, space);
        right = text.substr(space + 1);
      } else {
        return invalid_argument("model.merges has an entry that is no pair of tokens");
      }
      // Merges with or into control tokens are dropped: text never becomes one by merging.
      if (!parts_.bpe->add_merge(left, right) && !controls_.contains(left) &&
          !controls_.contains(right) && !controls_.contains(left + right))
        return invalid_argument("model.merges names a token that is not in the vocabulary: " +
                                left.substr(0, 80) + " " + right.substr(0, 80));
    }
    return {};
  }

  Status post_processor(const json& node, int depth) {
    if (node.is_null()) return {};
    if (depth > 8) return invalid_argument("post-processors within post-processors");
    const std::string type = json_string(node, "type");
    if (type == "ByteLevel") return {};
    if (type == "Sequence") {
      for (const json& step : json_member(node, "processors"))
        COHORT_RETURN_IF_ERROR(post_processor(step, depth + 1));
      return {};
    }
    if (type == "TemplateProcessing") return template_processing(node);
    if (type == "RobertaProcessing" || type == "BertProcessing") {
      COHORT_RETURN_IF_ERROR(add_pair(json_member(node, "cls"), parts_.prefix));
      return add_pair(json_member(node, "sep"), parts_.suffix);
    }
    return unimplemented("post-processor \"" + type + "\"");
  }

  // ["</s>", 2]
  Status add_pair(const json& pair, std::vector<TokenId>& out) const {
    const std::optional<TokenId> id =
        pair.is_array() && pair.size() == 2 ? token_id(pair[1]) : std::nullopt;
    if (!id || size_t(*id) >= parts_.tokens.size())
      return invalid_argument("a post-processor's token has no id");
    out.push_back(*id);
    return {};
  }

  Status template_processing(const json& node) {
    bool after_text = false;
    for (const json& item : json_member(node, "single")) {
      if (!json_member(item, "Sequence").is_null()) {
        after_text = true;
        continue;
      }
      const std::string name = json_string(json_member(item, "SpecialToken"), "id");
      const json& special = json_member(json_member(node, "special_tokens"), name.c_str());
      const json& ids = json_member(special, "ids");
      if (!ids.is_array())
        return invalid_argument("the post-processor's template names an unknown token: " + name);
      for (const json& id_node : ids) {
        const std::optional<TokenId> id = token_id(id_node);
        if (!id || size_t(*id) >= parts_.tokens.size())
          return invalid_argument("the post-processor's token " + name + " has a bad id");
        (after_text ? parts_.suffix : parts_.prefix).push_back(*id);
      }
    }
    return {};
  }

  const TokenizerFiles& files_;
  json root_;
  bool byte_level_ = false, meta_space_ = false;
  std::unordered_set<std::string> controls_;
  TokenizerParts parts_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> tokenizer_from_json(const TokenizerFiles& files) {
  Result<std::unique_ptr<Tokenizer>> result = Loader(files).load();
  if (!result.ok()) return result.status().annotate(files.name);
  return result;
}

}  // namespace cohort
