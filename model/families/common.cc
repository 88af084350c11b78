// SPDX-License-Identifier: Apache-2.0
#include "model/families/common.h"

#include <array>
#include <nlohmann/json.hpp>

#include "base/log.h"

namespace cohort {
namespace {

using nlohmann::json;

constexpr int64_t kMostTokens = int64_t(1) << 30;
constexpr std::array<IntegerField, 8> kFields = {{
    {&ModelConfig::hidden, "embedding_length", "hidden_size", 1 << 20},
    {&ModelConfig::layers, "block_count", "num_hidden_layers", 1 << 12},
    {&ModelConfig::heads, "attention.head_count", "num_attention_heads", 1 << 14},
    {&ModelConfig::kv_heads, "attention.head_count_kv", "num_key_value_heads", 1 << 14, false},
    {&ModelConfig::head_dim, "attention.key_length", "head_dim", 1 << 14, false},
    {&ModelConfig::ffn, "feed_forward_length", "intermediate_size", kMostFfn},
    {&ModelConfig::vocab, "", "vocab_size", kMostTokens},
    {&ModelConfig::context, "context_length", "max_position_embeddings", kMostTokens},
}};

Status read_shapes(const Settings& settings, ModelConfig& config) {
  COHORT_RETURN_IF_ERROR(read_integers(settings, kFields, config));
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  if (config.head_dim == 0) config.head_dim = config.hidden / config.heads;
  return {};
}

bool has_qkv_bias(const ModelConfig& config, int64_t) { return config.qkv_bias; }
bool norms_heads(const ModelConfig& config, int64_t) {
  return config.query_key_norm == QueryKeyNorm::heads;
}
bool norms_rows(const ModelConfig& config, int64_t) {
  return config.query_key_norm == QueryKeyNorm::rows;
}

constexpr TensorRule kEmbedding[] = {
    {"embedding", "token_embd.weight", "model.embed_tokens.weight", Extent::vocab, Extent::hidden}};

constexpr TensorRule kAttention[] = {
    {"layers.{}.attention_norm", "blk.{}.attn_norm.weight",
     "model.layers.{}.input_layernorm.weight", Extent::one, Extent::hidden},
    {"layers.{}.attention.q", "blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight",
     Extent::queries, Extent::hidden},
    {"layers.{}.attention.k", "blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight",
     Extent::keys, Extent::hidden},
    {"layers.{}.attention.v", "blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight",
     Extent::keys, Extent::hidden},
    {"layers.{}.attention.q_bias", "blk.{}.attn_q.bias", "model.layers.{}.self_attn.q_proj.bias",
     Extent::one, Extent::queries, false, has_qkv_bias},
    {"layers.{}.attention.k_bias", "blk.{}.attn_k.bias", "model.layers.{}.self_attn.k_proj.bias",
     Extent::one, Extent::keys, false, has_qkv_bias},
    {"layers.{}.attention.v_bias", "blk.{}.attn_v.bias", "model.layers.{}.self_attn.v_proj.bias",
     Extent::one, Extent::keys, false, has_qkv_bias},
    {"layers.{}.attention.q_norm", "blk.{}.attn_q_norm.weight",
     "model.layers.{}.self_attn.q_norm.weight", Extent::one, Extent::head, false, norms_heads},
    {"layers.{}.attention.k_norm", "blk.{}.attn_k_norm.weight",
     "model.layers.{}.self_attn.k_norm.weight", Extent::one, Extent::head, false, norms_heads},
    {"layers.{}.attention.q_norm", "blk.{}.attn_q_norm.weight",
     "model.layers.{}.self_attn.q_norm.weight", Extent::one, Extent::queries, false, norms_rows},
    {"layers.{}.attention.k_norm", "blk.{}.attn_k_norm.weight",
     "model.layers.{}.self_attn.k_norm.weight", Extent::one, Extent::keys, false, norms_rows},
    {"layers.{}.attention.o", "blk.{}.attn_output.weight",
     "model.layers.{}.self_attn.o_proj.weight", Extent::hidden, Extent::queries},
};

constexpr TensorRule kDense[] = {
    {"layers.{}.feed_forward_norm", "blk.{}.ffn_norm.weight",
     "model.layers.{}.post_attention_layernorm.weight", Extent::one, Extent::hidden},
    {"layers.{}.feed_forward.gate", "blk.{}.ffn_gate.weight",
     "model.layers.{}.mlp.gate_proj.weight", Extent::ffn, Extent::hidden, false, has_dense},
    {"layers.{}.feed_forward.up", "blk.{}.ffn_up.weight", "model.layers.{}.mlp.up_proj.weight",
     Extent::ffn, Extent::hidden, false, has_dense},
    {"layers.{}.feed_forward.down", "blk.{}.ffn_down.weight",
     "model.layers.{}.mlp.down_proj.weight", Extent::hidden, Extent::ffn, false, has_dense},
};

constexpr TensorRule kMlpExperts[] = {
    {"layers.{}.router", "blk.{}.ffn_gate_inp.weight", "model.layers.{}.mlp.gate.weight",
     Extent::experts, Extent::hidden, false, has_experts},
    {"layers.{}.experts.{}.gate", "blk.{}.ffn_gate_exps.weight",
     "model.layers.{}.mlp.experts.{}.gate_proj.weight", Extent::expert_ffn, Extent::hidden, false,
     has_experts},
    {"layers.{}.experts.{}.up", "blk.{}.ffn_up_exps.weight",
     "model.layers.{}.mlp.experts.{}.up_proj.weight", Extent::expert_ffn, Extent::hidden, false,
     has_experts},
    {"layers.{}.experts.{}.down", "blk.{}.ffn_down_exps.weight",
     "model.layers.{}.mlp.experts.{}.down_proj.weight", Extent::hidden, Extent::expert_ffn, false,
     has_experts},
};

constexpr TensorRule kEnd[] = {
    {"final_norm", "output_norm.weight", "model.norm.weight", Extent::one, Extent::hidden},
    {"head", "output.weight", "lm_head.weight", Extent::vocab, Extent::hidden, true},
};

Status out_of_range(std::string_view key, int64_t value, int64_t least, int64_t most) {
  return invalid_argument(
      concat("setting '", key, "' is ", value, ", not within ", least, " and ", most));
}

}  // namespace

const std::span<const TensorRule> kEmbeddingRules = kEmbedding;
const std::span<const TensorRule> kAttentionRules = kAttention;
const std::span<const TensorRule> kDenseRules = kDense;
const std::span<const TensorRule> kMlpExpertRules = kMlpExperts;
const std::span<const TensorRule> kEndRules = kEnd;

bool has_experts(const ModelConfig& config, int64_t layer) {
  return config.experts.in_layer(layer);
}
bool has_shared(const ModelConfig& config, int64_t layer) {
  return has_experts(config, layer) && config.experts.shared_ffn > 0;
}

bool has_dense(const ModelConfig& config, int64_t layer) { return !has_experts(config, layer); }

std::vector<TensorRule> join_rules(std::initializer_list<std::span<const TensorRule>> parts) {
  std::vector<TensorRule> rules;
  for (const auto& part : parts) rules.insert(rules.end(), part.begin(), part.end());
  return rules;
}

Status read_count_if_there(const Settings& settings, std::string_view key, int64_t least,
                           int64_t most, int64_t& into) {
  COHORT_ASSIGN_OR_RETURN(const std::optional<int64_t> value, settings.integer(key));
  if (!value) return {};
  if (*value < least || *value > most) return out_of_range(key, *value, least, most);
  into = *value;
  return {};
}

Status read_count(const Settings& settings, std::string_view key, int64_t least, int64_t most,
                  int64_t& into) {
  COHORT_ASSIGN_OR_RETURN(const std::optional<int64_t> value, settings.integer(key));
  if (!value) return invalid_argument(concat("setting '", key, "' is missing"));
  return read_count_if_there(settings, key, least, most, into);
}

Status cap_to_window(std::optional<int64_t> window, ModelConfig& config) {
  if (!window || *window >= config.context) return {};
  if (*window < 1) return invalid_argument(concat("'sliding_window' is ", *window));
  log_warning(concat("attention of this model sees the last ", *window, " of its ", config.context,
                     " positions; its context is cut to ", *window));
  config.context = *window;
  return {};
}

const GgufTensor* find_tensor(const GgufFile& file, std::string_view name) {
  for (const GgufTensor& tensor : file.tensors())
    if (tensor.name == name) return &tensor;
  return nullptr;
}

Result<ModelConfig> read_gguf_basics(const GgufFile& file, const Settings& settings) {
  ModelConfig config;
  config.name = std::string(file.string("general.name").value_or(""));
  COHORT_RETURN_IF_ERROR(read_shapes(settings, config));
  COHORT_ASSIGN_OR_RETURN(const std::optional<double> eps,
                          settings.number("attention.layer_norm_rms_epsilon"));
  if (!eps) return invalid_argument("setting 'attention.layer_norm_rms_epsilon' is missing");
  config.norm_eps = *eps;
  COHORT_ASSIGN_OR_RETURN(const auto window, settings.integer("attention.sliding_window"));
  if (window && *window != 0) COHORT_RETURN_IF_ERROR(cap_to_window(window, config));
  const GgufTensor* embedding = find_tensor(file, "token_embd.weight");
  if (!embedding || embedding->shape.empty())
    return invalid_argument("tensor 'token_embd.weight' is missing");
  config.vocab = embedding->shape[0];
  config.tied_embedding = find_tensor(file, "output.weight") == nullptr;
  return config;
}

Status read_gguf_experts(const Settings& settings, ModelConfig& config) {
  ExpertsConfig& experts = config.experts;
  COHORT_RETURN_IF_ERROR(read_count(settings, "expert_count", 1, kMostExperts, experts.count));
  COHORT_RETURN_IF_ERROR(
      read_count(settings, "expert_used_count", 1, kMostExpertsPerToken, experts.per_token));
  if (experts.ffn == 0)
    return read_count(settings, "expert_feed_forward_length", 1, kMostFfn, experts.ffn);
  return read_count_if_there(settings, "expert_feed_forward_length", 1, kMostFfn, experts.ffn);
}

Status refuse_other_value_width(const Settings& settings, const ModelConfig& config) {
  int64_t value_dim = config.head_dim;
  COHORT_RETURN_IF_ERROR(read_if_there(settings.integer("attention.value_length"), value_dim));
  if (value_dim == config.head_dim) return {};
  return unimplemented(concat("heads with keys of ", config.head_dim, " and values of ", value_dim,
                              " dimensions are not supported"));
}

Status read_json_basics(const json& object, const Settings& settings,
                        const std::vector<std::string_view>& biases, ModelConfig& config) {
  for (const std::string_view key : biases) {
    bool bias = false;
    COHORT_RETURN_IF_ERROR(read_if_there(settings.boolean(key), bias));
    if (bias) return unimplemented(concat("biases ('", key, "') are not supported"));
  }
  std::string activation = "silu";
  COHORT_RETURN_IF_ERROR(read_if_there(settings.text("hidden_act"), activation));
  if (activation != "silu")
    return unimplemented("activation '" + activation + "' is not supported in this family");
  const auto quantization = object.find("quantization_config");
  if (quantization != object.end() && !quantization->is_null())
    return unimplemented(
        "quantized safetensors ('quantization_config') are not supported; use a GGUF file");
  COHORT_RETURN_IF_ERROR(read_if_there(settings.text("_name_or_path"), config.name));
  COHORT_RETURN_IF_ERROR(read_shapes(settings, config));
  COHORT_RETURN_IF_ERROR(read_if_there(settings.number("rms_norm_eps"), config.norm_eps));
  return read_if_there(settings.boolean("tie_word_embeddings"), config.tied_embedding);
}

}  // namespace cohort
