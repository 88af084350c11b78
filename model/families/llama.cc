// SPDX-License-Identifier: Apache-2.0
// Llama and what is built like it: Llama 2 and 3, SmolLM2, TinyLlama, Mistral 7B. Pre-norm blocks
// of grouped-query attention with rotary positions and a SiLU-gated feed-forward, without biases.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "model/checkpoint.h"
#include "model/families.h"

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
    {&ModelConfig::ffn, "feed_forward_length", "intermediate_size", 1 << 22},
    {&ModelConfig::vocab, "", "vocab_size", kMostTokens},
    {&ModelConfig::context, "context_length", "max_position_embeddings", kMostTokens},
}};

constexpr std::array<TensorRule, 12> kTensors = {{
    {"embedding", "token_embd.weight", "model.embed_tokens.weight", Extent::vocab, Extent::hidden},
    {"layers.{}.attention_norm", "blk.{}.attn_norm.weight",
     "model.layers.{}.input_layernorm.weight", Extent::one, Extent::hidden},
    {"layers.{}.attention.q", "blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight",
     Extent::queries, Extent::hidden},
    {"layers.{}.attention.k", "blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight",
     Extent::keys, Extent::hidden},
    {"layers.{}.attention.v", "blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight",
     Extent::keys, Extent::hidden},
    {"layers.{}.attention.o", "blk.{}.attn_output.weight",
     "model.layers.{}.self_attn.o_proj.weight", Extent::hidden, Extent::queries},
    {"layers.{}.feed_forward_norm", "blk.{}.ffn_norm.weight",
     "model.layers.{}.post_attention_layernorm.weight", Extent::one, Extent::hidden},
    {"layers.{}.feed_forward.gate", "blk.{}.ffn_gate.weight",
     "model.layers.{}.mlp.gate_proj.weight", Extent::ffn, Extent::hidden},
    {"layers.{}.feed_forward.up", "blk.{}.ffn_up.weight", "model.layers.{}.mlp.up_proj.weight",
     Extent::ffn, Extent::hidden},
    {"layers.{}.feed_forward.down", "blk.{}.ffn_down.weight",
     "model.layers.{}.mlp.down_proj.weight", Extent::hidden, Extent::ffn},
    {"final_norm", "output_norm.weight", "model.norm.weight", Extent::one, Extent::hidden},
    {"head", "output.weight", "lm_head.weight", Extent::vocab, Extent::hidden, true},
}};

template <class T>
Status read_if_there(Result<std::optional<T>> found, T& into) {
  if (!found.ok()) return found.status();
  if (*found) into = **found;
  return {};
}

Status read_shapes(const Settings& settings, ModelConfig& config) {
  COHORT_RETURN_IF_ERROR(read_integers(settings, kFields, config));
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  if (config.head_dim == 0) config.head_dim = config.hidden / config.heads;
  return {};
}

// Within a window every position still sees all earlier ones, so a model with windowed attention
// is run exactly up to the size of its window.
Status cap_to_window(std::optional<int64_t> window, ModelConfig& config) {
  if (!window || *window >= config.context) return {};
  if (*window < 1) return invalid_argument(concat("'sliding_window' is ", *window));
  log_warning(concat("attention of this model sees the last ", *window, " of its ", config.context,
                     " positions; its context is cut to ", *window));
  config.context = *window;
  return {};
}

// --- GGUF ---

const GgufTensor* find_tensor(const GgufFile& file, std::string_view name) {
  for (const GgufTensor& tensor : file.tensors())
    if (tensor.name == name) return &tensor;
  return nullptr;
}

// The scaling of Llama 3 comes as its result: one divisor for each frequency.
Status read_divisors(const GgufFile& file, RopeConfig& rope) {
  const GgufTensor* tensor = find_tensor(file, "rope_freqs.weight");
  if (!tensor) return {};
  if (tensor->dtype != DType::f32 || tensor->shape != std::vector<int64_t>{rope.dims / 2})
    return invalid_argument(
        concat("tensor 'rope_freqs.weight' must hold ", rope.dims / 2, " numbers of type f32"));
  rope.frequency_divisors.resize(size_t(rope.dims / 2));
  dequantize(DType::f32, tensor->data, rope.dims / 2, rope.frequency_divisors.data());
  return {};
}

Status read_gguf_rope(const Settings& settings, const GgufFile& file, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  rope.pairing = RopePairing::neighbours;
  int64_t dims = config.head_dim;
  COHORT_RETURN_IF_ERROR(read_if_there(settings.integer("rope.dimension_count"), dims));
  if (dims < 0 || dims > config.head_dim)
    return invalid_argument(concat("setting 'rope.dimension_count' is ", dims, " and a head has ",
                                   config.head_dim, " dimensions"));
  rope.dims = int(dims);
  COHORT_RETURN_IF_ERROR(read_if_there(settings.number("rope.freq_base"), rope.theta));
  std::string type = "linear";
  COHORT_RETURN_IF_ERROR(read_if_there(settings.text("rope.scaling.type"), type));
  if (type != "linear" && type != "none")
    return unimplemented("rope scaling '" + type + "' is not supported; linear is, and Llama 3's");
  if (type == "linear") {
    // Files from before "rope.scaling" name the factor "rope.scale_linear".
    COHORT_RETURN_IF_ERROR(read_if_there(settings.number("rope.scale_linear"), rope.linear_factor));
    COHORT_RETURN_IF_ERROR(
        read_if_there(settings.number("rope.scaling.factor"), rope.linear_factor));
    if (rope.linear_factor == 0) rope.linear_factor = 1;  // "not set" in such files
  }
  return read_divisors(file, rope);
}

Status refuse_gguf_variants(const Settings& settings, const ModelConfig& config) {
  int64_t experts = 0, value_dim = config.head_dim;
  COHORT_RETURN_IF_ERROR(read_if_there(settings.integer("expert_count"), experts));
  if (experts != 0) return unimplemented("mixtures of experts are not supported in this family");
  COHORT_RETURN_IF_ERROR(read_if_there(settings.integer("attention.value_length"), value_dim));
  if (value_dim != config.head_dim)
    return unimplemented(concat("heads with keys of ", config.head_dim, " and values of ",
                                value_dim, " dimensions are not supported"));
  return {};
}

Result<ModelConfig> from_gguf(const GgufFile& file) {
  const std::unique_ptr<Settings> settings = gguf_settings(file, "llama.");
  ModelConfig config;
  config.name = std::string(file.string("general.name").value_or(""));
  COHORT_RETURN_IF_ERROR(read_shapes(*settings, config));
  COHORT_RETURN_IF_ERROR(refuse_gguf_variants(*settings, config));
  COHORT_ASSIGN_OR_RETURN(const std::optional<double> eps,
                          settings->number("attention.layer_norm_rms_epsilon"));
  if (!eps) return invalid_argument("setting 'attention.layer_norm_rms_epsilon' is missing");
  config.norm_eps = *eps;
  COHORT_ASSIGN_OR_RETURN(const auto window, settings->integer("attention.sliding_window"));
  if (window && *window != 0) COHORT_RETURN_IF_ERROR(cap_to_window(window, config));
  const GgufTensor* embedding = find_tensor(file, "token_embd.weight");
  if (!embedding || embedding->shape.empty())
    return invalid_argument("tensor 'token_embd.weight' is missing");
  config.vocab = embedding->shape[0];
  config.tied_embedding = find_tensor(file, "output.weight") == nullptr;
  COHORT_RETURN_IF_ERROR(read_gguf_rope(*settings, file, config));
  return config;
}

// --- config.json ---

Status read_llama3(const Settings& settings, RopeConfig& rope) {
  COHORT_ASSIGN_OR_RETURN(const auto factor, settings.number("factor"));
  COHORT_ASSIGN_OR_RETURN(const auto low, settings.number("low_freq_factor"));
  COHORT_ASSIGN_OR_RETURN(const auto high, settings.number("high_freq_factor"));
  COHORT_ASSIGN_OR_RETURN(const auto context, settings.integer("original_max_position_embeddings"));
  if (!factor || !low || !high || !context)
    return invalid_argument(
        "rope type 'llama3' needs factor, low_freq_factor, high_freq_factor and "
        "original_max_position_embeddings");
  rope.llama3 = RopeConfig::Llama3{*factor, *low, *high, *context};
  return {};
}

// `rope`: the object "rope_scaling" or, since transformers 5, "rope_parameters".
Status read_rope_object(const json& object, std::string_view key, RopeConfig& rope) {
  if (!object.is_object()) return invalid_argument(concat("setting '", key, "' is not an object"));
  const std::unique_ptr<Settings> settings = json_settings(object);
  COHORT_RETURN_IF_ERROR(read_if_there(settings->number("rope_theta"), rope.theta));
  double rotated = 1;
  COHORT_RETURN_IF_ERROR(read_if_there(settings->number("partial_rotary_factor"), rotated));
  if (rotated != 1) return unimplemented("partly rotated heads are not supported in this family");
  std::string type = "default";
  COHORT_RETURN_IF_ERROR(read_if_there(settings->text("type"), type));  // the older name
  COHORT_RETURN_IF_ERROR(read_if_there(settings->text("rope_type"), type));
  if (type == "default") return {};
  if (type == "llama3") return read_llama3(*settings, rope);
  if (type == "linear") {
    COHORT_ASSIGN_OR_RETURN(const auto factor, settings->number("factor"));
    if (!factor) return invalid_argument("rope type 'linear' needs a factor");
    rope.linear_factor = *factor;
    return {};
  }
  return unimplemented(
      concat("rope type '", type, "' is not supported; supported are: default, linear, llama3"));
}

Status read_json_rope(const json& object, const Settings& settings, ModelConfig& config) {
  config.rope.pairing = RopePairing::halves;
  config.rope.dims = int(config.head_dim);
  COHORT_RETURN_IF_ERROR(read_if_there(settings.number("rope_theta"), config.rope.theta));
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) continue;
    COHORT_RETURN_IF_ERROR(read_rope_object(*found, key, config.rope));
  }
  return {};
}

Status refuse_json_variants(const json& object, const Settings& settings) {
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    bool bias = false;
    COHORT_RETURN_IF_ERROR(read_if_there(settings.boolean(key), bias));
    if (bias) return unimplemented(concat("biases ('", key, "') are not supported"));
  }
  std::string activation = "silu";
  COHORT_RETURN_IF_ERROR(read_if_there(settings.text("hidden_act"), activation));
  if (activation != "silu")
    return unimplemented("activation '" + activation + "' is not supported in this family");
  double rotated = 1;
  COHORT_RETURN_IF_ERROR(read_if_there(settings.number("partial_rotary_factor"), rotated));
  if (rotated != 1) return unimplemented("partly rotated heads are not supported in this family");
  const auto quantization = object.find("quantization_config");
  if (quantization != object.end() && !quantization->is_null())
    return unimplemented(
        "quantized safetensors ('quantization_config') are not supported; use a GGUF file");
  return {};
}

Result<ModelConfig> from_json(const json& object, std::string_view architecture) {
  const std::unique_ptr<Settings> settings = json_settings(object);
  ModelConfig config;
  config.norm_eps = 1e-6;  // transformers' default
  COHORT_RETURN_IF_ERROR(read_if_there(settings->text("_name_or_path"), config.name));
  COHORT_RETURN_IF_ERROR(refuse_json_variants(object, *settings));
  COHORT_RETURN_IF_ERROR(read_shapes(*settings, config));
  COHORT_RETURN_IF_ERROR(read_if_there(settings->number("rms_norm_eps"), config.norm_eps));
  COHORT_RETURN_IF_ERROR(
      read_if_there(settings->boolean("tie_word_embeddings"), config.tied_embedding));
  if (architecture == "MistralForCausalLM") {
    COHORT_ASSIGN_OR_RETURN(std::optional<int64_t> window, settings->integer("sliding_window"));
    if (!object.contains("sliding_window")) window = 4096;  // transformers' default
    COHORT_RETURN_IF_ERROR(cap_to_window(window, config));
  }
  COHORT_RETURN_IF_ERROR(read_json_rope(object, *settings, config));
  return config;
}

}  // namespace

const Family& llama_family() {
  static const Family family = {
      .name = "llama",
      .gguf_architectures = {"llama"},
      .architectures = {"LlamaForCausalLM", "MistralForCausalLM"},
      .tensors = kTensors,
      .ignored = {"rope_freqs.weight", "model.layers.{}.self_attn.rotary_emb.inv_freq"},
      .from_gguf = from_gguf,
      .from_json = from_json,
  };
  return family;
}

}  // namespace cohort
