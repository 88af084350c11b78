// SPDX-License-Identifier: Apache-2.0
// The kinds of models that Cohort runs. A family is data (which tensors, under which names, of
// which shapes) and two small functions that turn settings into a ModelConfig. A new family is one
// file in model/families/ and its line in families.cc.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/config.h"
#include "model/gguf.h"
#include "model/settings.h"

namespace cohort {

// What a dimension of a tensor is.
enum class Extent {
  one,
  hidden,
  ffn,
  vocab,
  queries,  // heads * head_dim
  keys,     // kv_heads * head_dim
  head,     // head_dim
  experts,
  expert_ffn,
  shared_ffn,
  // Latent attention:
  q_rank,
  kv_rank,
  kv_down,  // kv_rank + rope_dim
  kv_up,    // heads * (nope_dim + value_dim)
  values,   // heads * value_dim
};
int64_t size_of(Extent extent, const ModelConfig& config);

// The first "{}" in a name stands for the number of a layer, the second for that of an expert. A
// file's name without a second one is a tensor [experts, rows, columns] that holds them all.
struct TensorRule {
  std::string_view name;  // Cohort's
  std::string_view gguf, safetensors;
  Extent rows, columns;  // rows of Extent::one: a vector
  bool absent_when_tied = false;
  bool (*in_layer)(const ModelConfig& config, int64_t layer) = nullptr;  // null: in all
  // GGUF files without `gguf` hold it in two tensors (model/latent_parts.h); empty: they must not.
  std::string_view gguf_keys = {}, gguf_values = {};
};

struct Family {
  std::string_view name;
  std::vector<std::string_view> gguf_architectures;  // general.architecture
  std::vector<std::string_view> architectures;       // of config.json
  std::span<const TensorRule> tensors;
  // Tensors that may be there and carry no weights of their own. Any other unknown tensor is an
  // error (but for those of the draft layers): a model with parts that nobody computes would give
  // wrong answers.
  std::vector<std::string_view> ignored;
  Result<ModelConfig> (*from_gguf)(const GgufFile& file);
  Result<ModelConfig> (*from_json)(const nlohmann::json& config, std::string_view architecture);
};

// model/families/*.cc
const Family& llama_family();
const Family& qwen_family();
const Family& olmoe_family();
const Family& deepseek_family();

// The config of a model whose family is known. Errors name the setting, and for an unknown
// architecture the known ones.
struct KnownModel {
  const Family* family;
  ModelConfig config;
};
Result<KnownModel> recognise(const GgufFile& file);
Result<KnownModel> recognise(const nlohmann::json& config);

}  // namespace cohort
