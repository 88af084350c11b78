// SPDX-License-Identifier: Apache-2.0
// What the families have in common: how settings are read, and the rules of tensors.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/config.h"
#include "model/families.h"
#include "model/gguf.h"
#include "model/settings.h"

namespace cohort {

constexpr int64_t kMostFfn = 1 << 22;  // width of a feed-forward or an expert
constexpr int64_t kMostExperts = 4096, kMostExpertsPerToken = 64;

template <class T>
Status read_if_there(Result<std::optional<T>> found, T& into) {
  if (!found.ok()) return found.status();
  if (*found) into = **found;
  return {};
}

// A count within [least, most]; one that is absent is an error.
Status read_count(const Settings& settings, std::string_view key, int64_t least, int64_t most,
                  int64_t& into);
// The same, but `into` stays where it is absent.
Status read_count_if_there(const Settings& settings, std::string_view key, int64_t least,
                           int64_t most, int64_t& into);

// Within a window every position still sees all earlier ones, so a model with windowed attention
// is run exactly up to the size of its window.
Status cap_to_window(std::optional<int64_t> window, ModelConfig& config);

// Marks the layers that `has_experts` leaves out as dense; where none is left, the model has no
// experts, and where none is left out, no dense feed-forward (config.ffn = 0).
template <class Predicate>
void place_experts(const Predicate& has_experts, ModelConfig& config) {
  for (int64_t layer = 0; layer < config.layers; layer++)
    if (!has_experts(layer)) config.experts.dense_layers.push_back(layer);
  if (config.experts.dense_layers.empty()) config.ffn = 0;
  if (int64_t(config.experts.dense_layers.size()) == config.layers) config.experts = {};
}

// --- GGUF ---

const GgufTensor* find_tensor(const GgufFile& file, std::string_view name);  // null: absent

// Shapes, epsilon, vocabulary, name and window.
Result<ModelConfig> read_gguf_basics(const GgufFile& file, const Settings& settings);
// Count of experts, how many a token has, and the width of one (without the setting: what
// experts.ffn is already). The settings must say that there are some.
Status read_gguf_experts(const Settings& settings, ModelConfig& config);
// Rotation of config.head_dim dimensions unless the file says how many.
Status read_gguf_rope(const Settings& settings, const GgufFile& file, RopePairing pairing,
                      ModelConfig& config);
Status refuse_other_value_width(const Settings& settings, const ModelConfig& config);

// --- config.json ---

// Shapes, epsilon (unless given: that in `config`), tied head and name; `config` has the family's
// defaults. Refuses other activations, quantized weights and `biases` (keys) that are true.
Status read_json_basics(const nlohmann::json& object, const Settings& settings,
                        const std::vector<std::string_view>& biases, ModelConfig& config);
// Rotation of config.rope.dims dimensions; 0: all of a head.
Status read_json_rope(const nlohmann::json& object, const Settings& settings, ModelConfig& config);
// Where config.json has the settings of the rotation; the second since transformers 5.
constexpr const char* kRopeObjects[] = {"rope_scaling", "rope_parameters"};

// --- Tensors ---

std::vector<TensorRule> join_rules(std::initializer_list<std::span<const TensorRule>> parts);

bool has_experts(const ModelConfig& config, int64_t layer);
bool has_shared(const ModelConfig& config, int64_t layer);  // a shared expert
bool has_dense(const ModelConfig& config, int64_t layer);

extern const std::span<const TensorRule> kEmbeddingRules;
extern const std::span<const TensorRule> kAttentionRules;  // plain, with biases and norms
extern const std::span<const TensorRule> kDenseRules;      // feed_forward_norm, feed_forward
extern const std::span<const TensorRule> kMlpExpertRules;  // router, experts under "mlp"
extern const std::span<const TensorRule> kEndRules;

}  // namespace cohort
