// SPDX-License-Identifier: Apache-2.0
// Llama and what is built like it: Llama 2 and 3, SmolLM2, TinyLlama, Mistral 7B. Pre-norm blocks
// of grouped-query attention with rotary positions and a SiLU-gated feed-forward, without biases.
// Mixtral has experts in place of every feed-forward; its GGUF files have the same architecture.
#include <nlohmann/json.hpp>

#include "model/families/common.h"

namespace cohort {
namespace {

using nlohmann::json;

// Mixtral's checkpoints have their own names.
constexpr TensorRule kExperts[] = {
    {"layers.{}.router", "blk.{}.ffn_gate_inp.weight",
     "model.layers.{}.block_sparse_moe.gate.weight", Extent::experts, Extent::hidden, false,
     has_experts},
    {"layers.{}.experts.{}.gate", "blk.{}.ffn_gate_exps.weight",
     "model.layers.{}.block_sparse_moe.experts.{}.w1.weight", Extent::expert_ffn, Extent::hidden,
     false, has_experts},
    {"layers.{}.experts.{}.up", "blk.{}.ffn_up_exps.weight",
     "model.layers.{}.block_sparse_moe.experts.{}.w3.weight", Extent::expert_ffn, Extent::hidden,
     false, has_experts},
    {"layers.{}.experts.{}.down", "blk.{}.ffn_down_exps.weight",
     "model.layers.{}.block_sparse_moe.experts.{}.w2.weight", Extent::hidden, Extent::expert_ffn,
     false, has_experts},
};

const std::vector<TensorRule>& tensors() {
  static const std::vector<TensorRule> rules =
      join_rules({kEmbeddingRules, kAttentionRules, kDenseRules, kExperts, kEndRules});
  return rules;
}

// Mixtral: softmax over all experts, the weights of the chosen ones divided by their sum.
void finish_mixtral(ModelConfig& config) {
  config.experts.normalise = true;
  place_experts([](int64_t) { return true; }, config);
}

Result<ModelConfig> from_gguf(const GgufFile& file) {
  const std::unique_ptr<Settings> settings = gguf_settings(file, "llama.");
  COHORT_ASSIGN_OR_RETURN(ModelConfig config, read_gguf_basics(file, *settings));
  COHORT_RETURN_IF_ERROR(refuse_other_value_width(*settings, config));
  int64_t experts = 0;
  COHORT_RETURN_IF_ERROR(read_if_there(settings->integer("expert_count"), experts));
  if (experts != 0) {
    config.experts.ffn = config.ffn;
    COHORT_RETURN_IF_ERROR(read_gguf_experts(*settings, config));
    finish_mixtral(config);
  }
  COHORT_RETURN_IF_ERROR(read_gguf_rope(*settings, file, RopePairing::neighbours, config));
  return config;
}

Status read_mixtral(const Settings& settings, ModelConfig& config) {
  COHORT_RETURN_IF_ERROR(
      read_count(settings, "num_local_experts", 1, kMostExperts, config.experts.count));
  COHORT_RETURN_IF_ERROR(read_count(settings, "num_experts_per_tok", 1, kMostExpertsPerToken,
                                    config.experts.per_token));
  config.experts.ffn = config.ffn;
  finish_mixtral(config);
  return {};
}

// Defaults are transformers'.
Result<ModelConfig> from_json(const json& object, std::string_view architecture) {
  const std::unique_ptr<Settings> settings = json_settings(object);
  const bool mixtral = architecture == "MixtralForCausalLM";
  ModelConfig config;
  config.norm_eps = mixtral ? 1e-5 : 1e-6;
  if (mixtral) config.rope.theta = 1e6;
  COHORT_RETURN_IF_ERROR(
      read_json_basics(object, *settings, {"attention_bias", "mlp_bias"}, config));
  if (architecture != "LlamaForCausalLM") {
    COHORT_ASSIGN_OR_RETURN(std::optional<int64_t> window, settings->integer("sliding_window"));
    if (!mixtral && !object.contains("sliding_window")) window = 4096;
    COHORT_RETURN_IF_ERROR(cap_to_window(window, config));
  }
  if (mixtral) COHORT_RETURN_IF_ERROR(read_mixtral(*settings, config));
  COHORT_RETURN_IF_ERROR(read_json_rope(object, *settings, config));
  return config;
}

}  // namespace

const Family& llama_family() {
  static const Family family = {
      .name = "llama",
      .gguf_architectures = {"llama"},
      .architectures = {"LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM"},
      .tensors = tensors(),
      .ignored = {"rope_freqs.weight", "model.layers.{}.self_attn.rotary_emb.inv_freq"},
      .from_gguf = from_gguf,
      .from_json = from_json,
  };
  return family;
}

}  // namespace cohort
