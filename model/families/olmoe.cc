// SPDX-License-Identifier: Apache-2.0
// OLMoE (arXiv 2409.02060): queries and keys are normed as whole rows, every layer has experts.
#include <nlohmann/json.hpp>

#include "model/families/common.h"

namespace cohort {
namespace {

using nlohmann::json;

const std::vector<TensorRule>& tensors() {
  static const std::vector<TensorRule> rules =
      join_rules({kEmbeddingRules, kAttentionRules, kDenseRules, kMlpExpertRules, kEndRules});
  return rules;
}

void finish(ModelConfig& config) {
  config.query_key_norm = QueryKeyNorm::rows;
  place_experts([](int64_t) { return true; }, config);
}

Result<ModelConfig> from_gguf(const GgufFile& file) {
  const std::unique_ptr<Settings> settings = gguf_settings(file, "olmoe.");
  COHORT_ASSIGN_OR_RETURN(ModelConfig config, read_gguf_basics(file, *settings));
  COHORT_RETURN_IF_ERROR(refuse_other_value_width(*settings, config));
  double clip = 0;
  COHORT_RETURN_IF_ERROR(read_if_there(settings->number("attention.clamp_kqv"), clip));
  if (clip != 0) return unimplemented("clipped queries and keys ('clamp_kqv') are not supported");
  config.experts.ffn = config.ffn;
  COHORT_RETURN_IF_ERROR(read_gguf_experts(*settings, config));
  COHORT_RETURN_IF_ERROR(
      read_if_there(settings->boolean("expert_weights_norm"), config.experts.normalise));
  finish(config);
  COHORT_RETURN_IF_ERROR(read_gguf_rope(*settings, file, RopePairing::halves, config));
  return config;
}

Result<ModelConfig> from_json(const json& object, std::string_view) {
  const std::unique_ptr<Settings> settings = json_settings(object);
  ModelConfig config;
  config.norm_eps = 1e-5;  // transformers' default
  COHORT_RETURN_IF_ERROR(read_json_basics(object, *settings, {"attention_bias"}, config));
  COHORT_ASSIGN_OR_RETURN(const auto clip, settings->number("clip_qkv"));
  if (clip) return unimplemented("clipped queries and keys ('clip_qkv') are not supported");
  ExpertsConfig& experts = config.experts;
  experts.ffn = config.ffn;
  COHORT_RETURN_IF_ERROR(read_count(*settings, "num_experts", 1, kMostExperts, experts.count));
  COHORT_RETURN_IF_ERROR(
      read_count(*settings, "num_experts_per_tok", 1, kMostExpertsPerToken, experts.per_token));
  COHORT_RETURN_IF_ERROR(read_if_there(settings->boolean("norm_topk_prob"), experts.normalise));
  finish(config);
  COHORT_RETURN_IF_ERROR(read_json_rope(object, *settings, config));
  return config;
}

}  // namespace

const Family& olmoe_family() {
  static const Family family = {
      .name = "olmoe",
      .gguf_architectures = {"olmoe"},
      .architectures = {"OlmoeForCausalLM"},
      .tensors = tensors(),
      .ignored = {},
      .from_gguf = from_gguf,
      .from_json = from_json,
  };
  return family;
}

}  // namespace cohort
