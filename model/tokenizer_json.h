// SPDX-License-Identifier: Apache-2.0
// Loading a Hugging Face tokenizer from memory; Tokenizer::from_json_file reads the files.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>
#include "base/status.h"
#include "model/tokenizer_pipeline.h"

namespace cohort {

// The files of a model's folder; empty where there is none.
struct TokenizerFiles {
  std::string name;                 // how errors call tokenizer.json
  std::string tokenizer;            // tokenizer.json
  std::string tokenizer_config{};   // tokenizer_config.json
  std::string generation_config{};  // generation_config.json
  std::string chat_template{};      // chat_template.jinja
};
Result<std::unique_ptr<Tokenizer>> tokenizer_from_json(const TokenizerFiles& files);

// tokenizer.json's "normalizer" and "pre_tokenizer", null included.
Result<std::vector<NormalizerStep>> parse_normalizers(const nlohmann::json& node);
Result<std::vector<PreTokenizerStep>> parse_pretokenizers(const nlohmann::json& node);

// Typed access that never throws: the fallback where the key is absent or of another type.
std::string json_string(const nlohmann::json& node, const char* key, std::string fallback = "");
bool json_bool(const nlohmann::json& node, const char* key, bool fallback);
// The member, or null where node is no object or has none.
const nlohmann::json& json_member(const nlohmann::json& node, const char* key);

}  // namespace cohort
