// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V2 (arXiv 2405.04434) and V3 (arXiv 2412.19437): latent attention, many small experts
// in groups beside shared ones, and a plain feed-forward in the first layers.
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/families/common.h"

namespace cohort {
namespace {

using nlohmann::json;
using Score = ExpertsConfig::Score;
using GroupScore = ExpertsConfig::GroupScore;

constexpr int64_t kMostDims = 1 << 14, kMostRank = 1 << 20;

bool has_q_rank(const ModelConfig& config, int64_t) { return config.latent.q_rank > 0; }
bool lacks_q_rank(const ModelConfig& config, int64_t) { return config.latent.q_rank == 0; }
bool has_choice_bias(const ModelConfig& config, int64_t layer) {
  return has_experts(config, layer) && config.experts.choice_bias;
}

constexpr TensorRule kAttention[] = {
    {"layers.{}.attention_norm", "blk.{}.attn_norm.weight",
     "model.layers.{}.input_layernorm.weight", Extent::one, Extent::hidden},
    {"layers.{}.attention.q", "blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight",
     Extent::queries, Extent::hidden, false, lacks_q_rank},
    {"layers.{}.attention.q_down", "blk.{}.attn_q_a.weight",
     "model.layers.{}.self_attn.q_a_proj.weight", Extent::q_rank, Extent::hidden, false,
     has_q_rank},
    {"layers.{}.attention.q_down_norm", "blk.{}.attn_q_a_norm.weight",
     "model.layers.{}.self_attn.q_a_layernorm.weight", Extent::one, Extent::q_rank, false,
     has_q_rank},
    {"layers.{}.attention.q_up", "blk.{}.attn_q_b.weight",
     "model.layers.{}.self_attn.q_b_proj.weight", Extent::queries, Extent::q_rank, false,
     has_q_rank},
    {"layers.{}.attention.kv_down", "blk.{}.attn_kv_a_mqa.weight",
     "model.layers.{}.self_attn.kv_a_proj_with_mqa.weight", Extent::kv_down, Extent::hidden},
    {"layers.{}.attention.kv_down_norm", "blk.{}.attn_kv_a_norm.weight",
     "model.layers.{}.self_attn.kv_a_layernorm.weight", Extent::one, Extent::kv_rank},
    {"layers.{}.attention.kv_up", "blk.{}.attn_kv_b.weight",
     "model.layers.{}.self_attn.kv_b_proj.weight", Extent::kv_up, Extent::kv_rank, false, nullptr,
     "blk.{}.attn_k_b.weight", "blk.{}.attn_v_b.weight"},
    {"layers.{}.attention.o", "blk.{}.attn_output.weight",
     "model.layers.{}.self_attn.o_proj.weight", Extent::hidden, Extent::values},
};

constexpr TensorRule kExperts[] = {
    {"layers.{}.router_bias", "blk.{}.exp_probs_b.bias",
     "model.layers.{}.mlp.gate.e_score_correction_bias", Extent::one, Extent::experts, false,
     has_choice_bias},
    {"layers.{}.shared_expert.gate", "blk.{}.ffn_gate_shexp.weight",
     "model.layers.{}.mlp.shared_experts.gate_proj.weight", Extent::shared_ffn, Extent::hidden,
     false, has_shared},
    {"layers.{}.shared_expert.up", "blk.{}.ffn_up_shexp.weight",
     "model.layers.{}.mlp.shared_experts.up_proj.weight", Extent::shared_ffn, Extent::hidden, false,
     has_shared},
    {"layers.{}.shared_expert.down", "blk.{}.ffn_down_shexp.weight",
     "model.layers.{}.mlp.shared_experts.down_proj.weight", Extent::hidden, Extent::shared_ffn,
     false, has_shared},
};

const std::vector<TensorRule>& tensors() {
  static const std::vector<TensorRule> rules =
      join_rules({kEmbeddingRules, kAttention, kDenseRules, kMlpExpertRules, kExperts, kEndRules});
  return rules;
}

Status set_shared(int64_t experts, ModelConfig& config) {
  config.experts.shared_ffn = experts * config.experts.ffn;
  if (config.experts.shared_ffn <= kMostFfn) return {};
  return invalid_argument(
      concat(experts, " shared experts of ", config.experts.ffn, " columns are too many"));
}

// --- GGUF ---

// Scores are multiplied by the square of what YaRN multiplies queries and keys by, and the rotation
// leaves sizes alone. "yarn_log_multiplier" is a tenth of DeepSeek's "mscale_all_dim", which every
// published model sets equal to "mscale".
Status read_gguf_score_scale(const Settings& settings, ModelConfig& config) {
  if (!config.rope.yarn) return {};
  COHORT_ASSIGN_OR_RETURN(const auto multiplier,
                          settings.number("rope.scaling.yarn_log_multiplier"));
  if (!multiplier) return invalid_argument("setting 'rope.scaling.yarn_log_multiplier' is missing");
  const double factor = std::max(config.rope.yarn->factor, 1.0);
  const double magnitude = 1 + *multiplier * std::log(factor);
  config.rope.yarn->attention_factor = 1;
  config.score_scale = magnitude * magnitude / std::sqrt(double(config.head_dim));
  return {};
}

Status read_gguf_latent(const Settings& settings, ModelConfig& config) {
  LatentConfig& latent = config.latent;
  COHORT_RETURN_IF_ERROR(
      read_count_if_there(settings, "attention.q_lora_rank", 0, kMostRank, latent.q_rank));
  COHORT_RETURN_IF_ERROR(
      read_count(settings, "attention.kv_lora_rank", 1, kMostRank, latent.kv_rank));
  // Files that hold the parts of kv_up apart describe one shared head of the latent rows in the
  // ordinary settings and the model's heads in these.
  int64_t key_dim = 0;
  COHORT_RETURN_IF_ERROR(
      read_count_if_there(settings, "attention.key_length_mla", 1, kMostDims, key_dim));
  if (key_dim != 0) config.head_dim = key_dim;
  COHORT_RETURN_IF_ERROR(
      read_count(settings, key_dim != 0 ? "attention.value_length_mla" : "attention.value_length",
                 1, kMostDims, latent.value_dim));
  COHORT_RETURN_IF_ERROR(
      read_count(settings, "rope.dimension_count", 2, kMostDims, latent.rope_dim));
  latent.nope_dim = config.head_dim - latent.rope_dim;
  if (latent.nope_dim < 1)
    return invalid_argument(concat("keys have ", config.head_dim,
                                   " dimensions and 'rope.dimension_count' is ", latent.rope_dim));
  config.kv_heads = config.heads;
  return {};
}

Status read_gguf_scores(const Settings& settings, ExpertsConfig& experts) {
  int64_t function = 1;  // 0 is "not set", as in files from before the setting
  COHORT_RETURN_IF_ERROR(read_if_there(settings.integer("expert_gating_func"), function));
  if (function < 0 || function > 2)
    return unimplemented(concat("setting 'expert_gating_func' is ", function,
                                "; supported are 1 (softmax) and 2 (sigmoid)"));
  if (function == 2) experts.score = Score::sigmoid;
  if (function == 2) experts.group_score = GroupScore::two_largest;
  COHORT_RETURN_IF_ERROR(read_if_there(settings.boolean("expert_weights_norm"), experts.normalise));
  COHORT_RETURN_IF_ERROR(read_if_there(settings.number("expert_weights_scale"), experts.scale));
  COHORT_RETURN_IF_ERROR(
      read_count_if_there(settings, "expert_group_count", 1, kMostExperts, experts.groups));
  experts.groups_per_token = experts.groups;
  return read_count_if_there(settings, "expert_group_used_count", 1, kMostExperts,
                             experts.groups_per_token);
}

Status read_gguf_mixture(const GgufFile& file, const Settings& settings, ModelConfig& config) {
  COHORT_RETURN_IF_ERROR(read_gguf_experts(settings, config));
  COHORT_RETURN_IF_ERROR(read_gguf_scores(settings, config.experts));
  int64_t dense = 0, shared = 0;
  COHORT_RETURN_IF_ERROR(read_count(settings, "leading_dense_block_count", 0, 1 << 12, dense));
  COHORT_RETURN_IF_ERROR(
      read_count_if_there(settings, "expert_shared_count", 0, kMostExperts, shared));
  COHORT_RETURN_IF_ERROR(set_shared(shared, config));
  config.experts.choice_bias =
      find_tensor(file, concat("blk.", dense, ".exp_probs_b.bias")) != nullptr;
  place_experts([dense](int64_t layer) { return layer >= dense; }, config);
  return {};
}

Result<ModelConfig> from_gguf(const GgufFile& file) {
  const std::unique_ptr<Settings> settings = gguf_settings(file, "deepseek2.");
  COHORT_ASSIGN_OR_RETURN(ModelConfig config, read_gguf_basics(file, *settings));
  COHORT_RETURN_IF_ERROR(read_gguf_latent(*settings, config));
  COHORT_RETURN_IF_ERROR(read_gguf_mixture(file, *settings, config));
  COHORT_RETURN_IF_ERROR(read_gguf_rope(*settings, file, RopePairing::neighbours, config));
  COHORT_RETURN_IF_ERROR(read_gguf_score_scale(*settings, config));
  return config;
}

// --- config.json ---

// transformers multiplies the scores by the square of YaRN's magnitude for "mscale_all_dim".
Status read_json_score_scale(const json& object, ModelConfig& config) {
  for (const char* key : kRopeObjects) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_object()) continue;
    const std::unique_ptr<Settings> settings = json_settings(*found);
    double scale = 0;
    COHORT_RETURN_IF_ERROR(read_if_there(settings->number("mscale_all_dim"), scale));
    if (scale == 0) continue;
    if (!config.rope.yarn)
      return unimplemented("'mscale_all_dim' is supported with rope type 'yarn' only");
    const double factor = std::max(config.rope.yarn->factor, 1.0);
    const double magnitude = 1 + 0.1 * scale * std::log(factor);
    config.score_scale = magnitude * magnitude / std::sqrt(double(config.head_dim));
  }
  return {};
}

Status read_json_latent(const json& object, const Settings& settings, ModelConfig& config) {
  LatentConfig& latent = config.latent;
  if (!object.contains("q_lora_rank"))
    return invalid_argument("setting 'q_lora_rank' is missing; null where queries have no rank");
  COHORT_RETURN_IF_ERROR(read_count_if_there(settings, "q_lora_rank", 1, kMostRank, latent.q_rank));
  COHORT_RETURN_IF_ERROR(read_count(settings, "kv_lora_rank", 1, kMostRank, latent.kv_rank));
  COHORT_RETURN_IF_ERROR(read_count(settings, "qk_nope_head_dim", 1, kMostDims, latent.nope_dim));
  COHORT_RETURN_IF_ERROR(read_count(settings, "qk_rope_head_dim", 2, kMostDims, latent.rope_dim));
  COHORT_RETURN_IF_ERROR(read_count(settings, "v_head_dim", 1, kMostDims, latent.value_dim));
  config.kv_heads = config.heads;
  config.head_dim = latent.nope_dim + latent.rope_dim;
  config.rope.dims = int(latent.rope_dim);
  config.rope.pairing = RopePairing::neighbours;
  // The norms of the latents have transformers' constant, the others the setting.
  if (config.norm_eps != 1e-6)
    return unimplemented(
        concat("'rms_norm_eps' is ", config.norm_eps, "; only 1e-6 is supported in this family"));
  return {};
}

Status refuse_other_text(const Settings& settings, std::string_view key,
                         std::string_view expected) {
  std::string value(expected);
  COHORT_RETURN_IF_ERROR(read_if_there(settings.text(key), value));
  if (value == expected) return {};
  return unimplemented(concat("setting '", key, "' is '", value, "'; supported is '", expected,
                              "' in this architecture"));
}

Status read_groups(const Settings& settings, ExpertsConfig& experts) {
  COHORT_RETURN_IF_ERROR(read_count(settings, "n_group", 1, kMostExperts, experts.groups));
  return read_count(settings, "topk_group", 1, kMostExperts, experts.groups_per_token);
}

Status read_v2_scores(const Settings& settings, ExpertsConfig& experts) {
  COHORT_RETURN_IF_ERROR(refuse_other_text(settings, "scoring_func", "softmax"));
  bool normalise = false;
  COHORT_RETURN_IF_ERROR(read_if_there(settings.boolean("norm_topk_prob"), normalise));
  if (normalise)  // transformers passes the setting over, DeepSeek's own code does not
    return unimplemented("'norm_topk_prob' is not supported in DeepSeek-V2");
  std::string method = "greedy";
  COHORT_RETURN_IF_ERROR(read_if_there(settings.text("topk_method"), method));
  if (method == "greedy") return {};
  if (method == "group_limited_greedy") return read_groups(settings, experts);
  return unimplemented(concat("setting 'topk_method' is '", method,
                              "'; supported are 'greedy' and 'group_limited_greedy'"));
}

Status read_v3_scores(const Settings& settings, ExpertsConfig& experts) {
  COHORT_RETURN_IF_ERROR(refuse_other_text(settings, "scoring_func", "sigmoid"));
  COHORT_RETURN_IF_ERROR(refuse_other_text(settings, "topk_method", "noaux_tc"));
  experts.score = Score::sigmoid;
  experts.group_score = GroupScore::two_largest;
  experts.choice_bias = true;
  experts.normalise = true;  // transformers' default
  COHORT_RETURN_IF_ERROR(read_if_there(settings.boolean("norm_topk_prob"), experts.normalise));
  return read_groups(settings, experts);
}

Status read_json_mixture(const Settings& settings, bool third, ModelConfig& config) {
  ExpertsConfig& experts = config.experts;
  COHORT_RETURN_IF_ERROR(read_count(settings, "n_routed_experts", 1, kMostExperts, experts.count));
  COHORT_RETURN_IF_ERROR(
      read_count(settings, "num_experts_per_tok", 1, kMostExpertsPerToken, experts.per_token));
  COHORT_RETURN_IF_ERROR(read_count(settings, "moe_intermediate_size", 1, kMostFfn, experts.ffn));
  int64_t shared = 0, dense = 0, step = 1;
  COHORT_RETURN_IF_ERROR(read_count(settings, "n_shared_experts", 0, kMostExperts, shared));
  COHORT_RETURN_IF_ERROR(set_shared(shared, config));
  COHORT_RETURN_IF_ERROR(read_count(settings, "first_k_dense_replace", 0, 1 << 12, dense));
  COHORT_RETURN_IF_ERROR(read_if_there(settings.integer("moe_layer_freq"), step));
  if (step != 1) return unimplemented(concat("'moe_layer_freq' is ", step, "; supported is 1"));
  COHORT_ASSIGN_OR_RETURN(const auto scale, settings.number("routed_scaling_factor"));
  if (!scale) return invalid_argument("setting 'routed_scaling_factor' is missing");
  experts.scale = *scale;
  COHORT_RETURN_IF_ERROR(third ? read_v3_scores(settings, experts)
                               : read_v2_scores(settings, experts));
  place_experts([dense](int64_t layer) { return layer >= dense; }, config);
  return {};
}

Result<ModelConfig> from_json(const json& object, std::string_view architecture) {
  const std::unique_ptr<Settings> settings = json_settings(object);
  const bool third = architecture == "DeepseekV3ForCausalLM";
  ModelConfig config;
  config.norm_eps = 1e-6;  // transformers' default
  COHORT_RETURN_IF_ERROR(
      read_json_basics(object, *settings, {"attention_bias", "mlp_bias"}, config));
  COHORT_RETURN_IF_ERROR(read_json_latent(object, *settings, config));
  bool neighbours = true;
  if (third)
    COHORT_RETURN_IF_ERROR(read_if_there(settings->boolean("rope_interleave"), neighbours));
  if (!neighbours) config.rope.pairing = RopePairing::halves;
  COHORT_RETURN_IF_ERROR(read_json_mixture(*settings, third, config));
  COHORT_RETURN_IF_ERROR(
      read_count_if_there(*settings, "num_nextn_predict_layers", 0, 1 << 6, config.draft_layers));
  COHORT_RETURN_IF_ERROR(read_json_rope(object, *settings, config));
  COHORT_RETURN_IF_ERROR(read_json_score_scale(object, config));
  return config;
}

}  // namespace

const Family& deepseek_family() {
  static const Family family = {
      .name = "deepseek",
      .gguf_architectures = {"deepseek2"},
      .architectures = {"DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM"},
      .tensors = tensors(),
      .ignored = {"rope_freqs.weight", "model.layers.{}.self_attn.rotary_emb.inv_freq"},
      .from_gguf = from_gguf,
      .from_json = from_json,
  };
  return family;
}

}  // namespace cohort
