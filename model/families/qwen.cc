// SPDX-License-Identifier: Apache-2.0
// Qwen2 and Qwen3, dense and with experts. Version 2 has biases on queries, keys and values, and
// its experts stand beside a gated shared one; version 3 norms every head of queries and keys.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "model/families/common.h"

namespace cohort {
namespace {

using nlohmann::json;

struct Kind {
  std::string_view gguf, architecture;
  bool third, experts;
};
constexpr Kind kKinds[] = {{"qwen2", "Qwen2ForCausalLM", false, false},
                           {"qwen3", "Qwen3ForCausalLM", true, false},
                           {"qwen2moe", "Qwen2MoeForCausalLM", false, true},
                           {"qwen3moe", "Qwen3MoeForCausalLM", true, true}};

const Kind& kind_of(std::string_view name, std::string_view Kind::*member) {
  for (const Kind& kind : kKinds)
    if (kind.*member == name) return kind;
  return kKinds[0];
}

constexpr TensorRule kShared[] = {
    {"layers.{}.shared_expert.gate", "blk.{}.ffn_gate_shexp.weight",
     "model.layers.{}.mlp.shared_expert.gate_proj.weight", Extent::shared_ffn, Extent::hidden,
     false, has_shared},
    {"layers.{}.shared_expert.up", "blk.{}.ffn_up_shexp.weight",
     "model.layers.{}.mlp.shared_expert.up_proj.weight", Extent::shared_ffn, Extent::hidden, false,
     has_shared},
    {"layers.{}.shared_expert.down", "blk.{}.ffn_down_shexp.weight",
     "model.layers.{}.mlp.shared_expert.down_proj.weight", Extent::hidden, Extent::shared_ffn,
     false, has_shared},
    {"layers.{}.shared_gate", "blk.{}.ffn_gate_inp_shexp.weight",
     "model.layers.{}.mlp.shared_expert_gate.weight", Extent::one, Extent::hidden, false,
     has_shared},
};

const std::vector<TensorRule>& tensors() {
  static const std::vector<TensorRule> rules = join_rules(
      {kEmbeddingRules, kAttentionRules, kDenseRules, kMlpExpertRules, kShared, kEndRules});
  return rules;
}

// --- GGUF ---

// Files have no setting for whether weights are divided by their sum (it is a matter of the
// architecture) nor for which layers have experts: those that have a router.
Status read_gguf_mixture(const GgufFile& file, const Settings& settings, const Kind& kind,
                         ModelConfig& config) {
  ExpertsConfig& experts = config.experts;
  COHORT_RETURN_IF_ERROR(read_gguf_experts(settings, config));
  experts.normalise = kind.third;
  COHORT_RETURN_IF_ERROR(read_if_there(settings.boolean("expert_weights_norm"), experts.normalise));
  if (!kind.third) {
    experts.shared_gate = true;
    experts.shared_ffn = config.ffn;
    COHORT_RETURN_IF_ERROR(read_count_if_there(settings, "expert_shared_feed_forward_length", 1,
                                               kMostFfn, experts.shared_ffn));
  }
  std::set<std::string_view> names;
  for (const GgufTensor& tensor : file.tensors()) names.insert(tensor.name);
  place_experts(
      [&](int64_t layer) { return names.contains(concat("blk.", layer, ".ffn_gate_inp.weight")); },
      config);
  return {};
}

Result<ModelConfig> from_gguf(const GgufFile& file) {
  const Kind& kind = kind_of(file.string("general.architecture").value_or(""), &Kind::gguf);
  const std::unique_ptr<Settings> settings = gguf_settings(file, std::string(kind.gguf) + ".");
  COHORT_ASSIGN_OR_RETURN(ModelConfig config, read_gguf_basics(file, *settings));
  COHORT_RETURN_IF_ERROR(refuse_other_value_width(*settings, config));
  config.qkv_bias = !kind.third;
  if (kind.third) config.query_key_norm = QueryKeyNorm::heads;
  if (kind.experts) COHORT_RETURN_IF_ERROR(read_gguf_mixture(file, *settings, kind, config));
  COHORT_RETURN_IF_ERROR(read_gguf_rope(*settings, file, RopePairing::halves, config));
  return config;
}

// --- config.json; defaults are transformers' ---

// Layers that keep a plain feed-forward although others have experts.
Result<std::vector<int64_t>> plain_layers(const json& object) {
  const auto found = object.find("mlp_only_layers");
  if (found == object.end() || found->is_null()) return std::vector<int64_t>();
  if (!found->is_array()) return invalid_argument("setting 'mlp_only_layers' is not a list");
  std::vector<int64_t> layers;
  for (const json& layer : *found) {
    if (!layer.is_number_integer())
      return invalid_argument("setting 'mlp_only_layers' is not a list of whole numbers");
    layers.push_back(layer.get<int64_t>());
  }
  std::sort(layers.begin(), layers.end());
  return layers;
}

Status read_json_mixture(const json& object, const Settings& settings, const Kind& kind,
                         ModelConfig& config) {
  ExpertsConfig& experts = config.experts;
  const std::string_view count =
      object.contains("num_experts") ? "num_experts" : "num_local_experts";
  COHORT_RETURN_IF_ERROR(read_count(settings, count, 0, kMostExperts, experts.count));
  COHORT_RETURN_IF_ERROR(
      read_count(settings, "num_experts_per_tok", 1, kMostExpertsPerToken, experts.per_token));
  COHORT_RETURN_IF_ERROR(read_count(settings, "moe_intermediate_size", 1, kMostFfn, experts.ffn));
  COHORT_RETURN_IF_ERROR(read_if_there(settings.boolean("norm_topk_prob"), experts.normalise));
  if (!kind.third) {
    experts.shared_gate = true;
    COHORT_RETURN_IF_ERROR(
        read_count(settings, "shared_expert_intermediate_size", 1, kMostFfn, experts.shared_ffn));
  }
  int64_t step = 1;  // every so many-th layer has experts
  COHORT_RETURN_IF_ERROR(read_count_if_there(settings, "decoder_sparse_step", 1, 1 << 12, step));
  COHORT_ASSIGN_OR_RETURN(const std::vector<int64_t> plain, plain_layers(object));
  place_experts(
      [&](int64_t layer) {
        return experts.count > 0 && (layer + 1) % step == 0 &&
               !std::binary_search(plain.begin(), plain.end(), layer);
      },
      config);
  return {};
}

Status read_window(const Settings& settings, ModelConfig& config) {
  bool used = false;
  COHORT_RETURN_IF_ERROR(read_if_there(settings.boolean("use_sliding_window"), used));
  if (!used) return {};
  // Some layers may see more, but how many differs from kind to kind.
  int64_t window = 4096;
  COHORT_RETURN_IF_ERROR(read_if_there(settings.integer("sliding_window"), window));
  return cap_to_window(window, config);
}

Result<ModelConfig> from_json(const json& object, std::string_view architecture) {
  const Kind& kind = kind_of(architecture, &Kind::architecture);
  const std::unique_ptr<Settings> settings = json_settings(object);
  ModelConfig config;
  config.norm_eps = 1e-6;
  if (kind.third && !kind.experts) config.head_dim = 128;
  COHORT_RETURN_IF_ERROR(read_json_basics(object, *settings, {"attention_bias"}, config));
  config.qkv_bias = !kind.third;
  if (kind.third) config.query_key_norm = QueryKeyNorm::heads;
  if (kind.experts && !kind.third)
    COHORT_RETURN_IF_ERROR(read_if_there(settings->boolean("qkv_bias"), config.qkv_bias));
  COHORT_RETURN_IF_ERROR(read_window(*settings, config));
  if (kind.experts) COHORT_RETURN_IF_ERROR(read_json_mixture(object, *settings, kind, config));
  COHORT_RETURN_IF_ERROR(read_json_rope(object, *settings, config));
  return config;
}

}  // namespace

const Family& qwen_family() {
  static const Family family = {
      .name = "qwen",
      .gguf_architectures = {kKinds[0].gguf, kKinds[1].gguf, kKinds[2].gguf, kKinds[3].gguf},
      .architectures = {kKinds[0].architecture, kKinds[1].architecture, kKinds[2].architecture,
                        kKinds[3].architecture},
      .tensors = tensors(),
      .ignored = {"rope_freqs.weight", "model.layers.{}.self_attn.rotary_emb.inv_freq"},
      .from_gguf = from_gguf,
      .from_json = from_json,
  };
  return family;
}

}  // namespace cohort
