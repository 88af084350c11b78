// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer_json_config.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace cohort {
namespace {

using nlohmann::json;

constexpr std::streamoff kMaxFileBytes = 256 << 20;

std::optional<TokenId> find_token(const TokenizerParts& parts, const std::string& text) {
  if (text.empty()) return std::nullopt;
  for (size_t i = 0; i < parts.tokens.size(); i++)
    if (parts.tokens[i].text == text) return TokenId(i);
  return std::nullopt;
}

// "</s>" or {"content": "</s>", ...}.
std::optional<TokenId> named_token(const TokenizerParts& parts, const json& node) {
  return find_token(parts,
                    node.is_string() ? node.get<std::string>() : json_string(node, "content"));
}

void add_end_token(TokenizerParts& parts, std::optional<TokenId> id) {
  auto& ends = parts.end_tokens;
  if (id && std::find(ends.begin(), ends.end(), *id) == ends.end()) ends.push_back(*id);
}

void add_end_ids(TokenizerParts& parts, const json& node) {
  if (node.is_array())
    for (const json& item : node)
      if (!item.is_array()) add_end_ids(parts, item);
  if (!node.is_number_integer()) return;
  const int64_t id = node.get<int64_t>();
  if (id >= 0 && id < int64_t(parts.tokens.size())) add_end_token(parts, TokenId(id));
}

// One template, or a list of named ones.
std::optional<std::string> chat_template_of(const json& node) {
  if (node.is_string()) return node.get<std::string>();
  if (node.is_array())
    for (const json& item : node)
      if (json_string(item, "name") == "default") return json_string(item, "template");
  return std::nullopt;
}

void overrule(const json& wanted, std::optional<TokenId> id, std::vector<TokenId>& around) {
  if (!wanted.is_boolean() || !id) return;
  std::erase(around, *id);
  if (wanted.get<bool>()) around.insert(around.begin(), *id);
}

Result<json> parse_object(const std::string& text, const char* name) {
  if (text.empty()) return json();
  json node = json::parse(text, nullptr, false);
  if (!node.is_object()) return invalid_argument(concat(name, " is not a JSON object"));
  return node;
}

Result<std::string> read_file(const std::string& path, bool required) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file && !required) return std::string();
  if (!file) return not_found(path + ": cannot be opened");
  const std::streamoff size = file.tellg();
  if (size < 0 || size > kMaxFileBytes)
    return invalid_argument(concat(path, ": is not a file of at most ", kMaxFileBytes, " bytes"));
  std::string text(size_t(size), '\0');
  file.seekg(0).read(text.data(), size);
  if (file.gcount() != size) return data_loss(path + ": cannot be read");
  return text;
}

}  // namespace

Status apply_configs(const TokenizerFiles& files, TokenizerParts& parts) {
  COHORT_ASSIGN_OR_RETURN(const json config,
                          parse_object(files.tokenizer_config, "tokenizer_config.json"));
  COHORT_ASSIGN_OR_RETURN(const json generation,
                          parse_object(files.generation_config, "generation_config.json"));
  parts.bos = named_token(parts, json_member(config, "bos_token"));
  parts.eos = named_token(parts, json_member(config, "eos_token"));
  if (!parts.bos && !parts.prefix.empty()) parts.bos = parts.prefix.front();
  if (!parts.eos && !parts.suffix.empty()) parts.eos = parts.suffix.back();
  overrule(json_member(config, "add_bos_token"), parts.bos, parts.prefix);
  overrule(json_member(config, "add_eos_token"), parts.eos, parts.suffix);
  add_end_token(parts, parts.eos);
  add_end_ids(parts, json_member(generation, "eos_token_id"));
  if (!parts.eos && !parts.end_tokens.empty()) parts.eos = parts.end_tokens.front();
  parts.chat_template = files.chat_template.empty()
                            ? chat_template_of(json_member(config, "chat_template"))
                            : files.chat_template;
  return {};
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_json_file(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  TokenizerFiles files;
  files.name = path;
  COHORT_ASSIGN_OR_RETURN(files.tokenizer, read_file(path, true));
  COHORT_ASSIGN_OR_RETURN(files.tokenizer_config,
                          read_file(folder + "tokenizer_config.json", false));
  COHORT_ASSIGN_OR_RETURN(files.generation_config,
                          read_file(folder + "generation_config.json", false));
  COHORT_ASSIGN_OR_RETURN(files.chat_template, read_file(folder + "chat_template.jinja", false));
  return tokenizer_from_json(files);
}

}  // namespace cohort
