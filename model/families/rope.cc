// SPDX-License-Identifier: Apache-2.0
// The settings of the rotation. Scalings mean what transformers' modeling_rope_utils computes.
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/checkpoint.h"
#include "model/families/common.h"

namespace cohort {
namespace {

using nlohmann::json;

// YaRN's growth of attention with the logarithm of the stretch.
double magnitude(double factor, double scale) {
  return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1;
}

// --- GGUF ---

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

Status read_gguf_yarn(const Settings& settings, ModelConfig& config) {
  RopeConfig::Yarn yarn{.original_context = config.context};
  COHORT_ASSIGN_OR_RETURN(const auto factor, settings.number("rope.scaling.factor"));
  if (!factor) return invalid_argument("rope scaling 'yarn' needs 'rope.scaling.factor'");
  yarn.factor = *factor;
  COHORT_RETURN_IF_ERROR(read_if_there(settings.integer("rope.scaling.original_context_length"),
                                       yarn.original_context));
  COHORT_RETURN_IF_ERROR(
      read_if_there(settings.number("rope.scaling.yarn_beta_fast"), yarn.beta_fast));
  COHORT_RETURN_IF_ERROR(
      read_if_there(settings.number("rope.scaling.yarn_beta_slow"), yarn.beta_slow));
  for (const char* key : {"rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor",
                          "rope.scaling.yarn_ext_factor"}) {
    double other = 1;
    COHORT_RETURN_IF_ERROR(read_if_there(settings.number(key), other));
    if (other != 1)
      return unimplemented(concat("setting '", key, "' is ", other, "; only 1 is supported"));
  }
  yarn.attention_factor = magnitude(yarn.factor, 1);
  config.rope.yarn = yarn;
  return {};
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

// Zero means "not set".
Status read_nonzero(const Settings& settings, std::string_view key, double& into) {
  double value = 0;
  COHORT_RETURN_IF_ERROR(read_if_there(settings.number(key), value));
  if (value != 0) into = value;
  return {};
}

// `model`: the settings around the object.
Status read_json_yarn(const Settings& settings, const Settings& model, ModelConfig& config) {
  RopeConfig::Yarn yarn{.original_context = config.context};
  for (const Settings* place : {&settings, &model})  // the latter has priority
    COHORT_RETURN_IF_ERROR(
        read_if_there(place->integer("original_max_position_embeddings"), yarn.original_context));
  if (yarn.original_context < 1)
    return invalid_argument(
        concat("'original_max_position_embeddings' is ", yarn.original_context));
  yarn.factor = double(config.context) / double(yarn.original_context);
  COHORT_RETURN_IF_ERROR(read_if_there(settings.number("factor"), yarn.factor));
  COHORT_RETURN_IF_ERROR(read_nonzero(settings, "beta_fast", yarn.beta_fast));
  COHORT_RETURN_IF_ERROR(read_nonzero(settings, "beta_slow", yarn.beta_slow));
  COHORT_RETURN_IF_ERROR(read_if_there(settings.boolean("truncate"), yarn.truncate));
  double scale = 0, scale_all = 0;
  COHORT_RETURN_IF_ERROR(read_nonzero(settings, "mscale", scale));
  COHORT_RETURN_IF_ERROR(read_nonzero(settings, "mscale_all_dim", scale_all));
  yarn.attention_factor = scale != 0 && scale_all != 0
                              ? magnitude(yarn.factor, scale) / magnitude(yarn.factor, scale_all)
                              : magnitude(yarn.factor, 1);
  COHORT_RETURN_IF_ERROR(read_if_there(settings.number("attention_factor"), yarn.attention_factor));
  config.rope.yarn = yarn;
  return {};
}

Status read_rope_object(const json& object, const Settings& model, ModelConfig& config) {
  const std::unique_ptr<Settings> settings = json_settings(object);
  RopeConfig& rope = config.rope;
  for (const auto& [key, value] : object.items())
    if (value.is_object())
      return unimplemented(
          concat("a rotary embedding of its own for layers of type '", key, "' is not supported"));
  COHORT_RETURN_IF_ERROR(read_if_there(settings->number("rope_theta"), rope.theta));
  double rotated = 1;
  COHORT_RETURN_IF_ERROR(read_if_there(settings->number("partial_rotary_factor"), rotated));
  if (rotated != 1) return unimplemented("partly rotated heads are not supported in this family");
  std::string type = "default";
  COHORT_RETURN_IF_ERROR(read_if_there(settings->text("type"), type));  // the older name
  COHORT_RETURN_IF_ERROR(read_if_there(settings->text("rope_type"), type));
  if (type == "default") return {};
  if (type == "llama3") return read_llama3(*settings, rope);
  if (type == "yarn") return read_json_yarn(*settings, model, config);
  if (type == "linear") {
    COHORT_ASSIGN_OR_RETURN(const auto factor, settings->number("factor"));
    if (!factor) return invalid_argument("rope type 'linear' needs a factor");
    rope.linear_factor = *factor;
    return {};
  }
  return unimplemented(concat("rope type '", type,
                              "' is not supported; supported are: default, linear, llama3, yarn"));
}

}  // namespace

Status read_gguf_rope(const Settings& settings, const GgufFile& file, RopePairing pairing,
                      ModelConfig& config) {
  RopeConfig& rope = config.rope;
  rope.pairing = pairing;
  int64_t dims = config.head_dim;
  COHORT_RETURN_IF_ERROR(read_if_there(settings.integer("rope.dimension_count"), dims));
  if (dims < 0 || dims > config.head_dim)
    return invalid_argument(concat("setting 'rope.dimension_count' is ", dims, " and a head has ",
                                   config.head_dim, " dimensions"));
  rope.dims = int(dims);
  COHORT_RETURN_IF_ERROR(read_if_there(settings.number("rope.freq_base"), rope.theta));
  std::string type = "linear";
  COHORT_RETURN_IF_ERROR(read_if_there(settings.text("rope.scaling.type"), type));
  if (type == "yarn") {
    COHORT_RETURN_IF_ERROR(read_gguf_yarn(settings, config));
  } else if (type == "linear") {
    // Files from before "rope.scaling" name the factor "rope.scale_linear".
    COHORT_RETURN_IF_ERROR(read_if_there(settings.number("rope.scale_linear"), rope.linear_factor));
    COHORT_RETURN_IF_ERROR(
        read_if_there(settings.number("rope.scaling.factor"), rope.linear_factor));
    if (rope.linear_factor == 0) rope.linear_factor = 1;  // "not set" in such files
  } else if (type != "none") {
    return unimplemented("rope scaling '" + type +
                         "' is not supported; linear and yarn are, and Llama 3's");
  }
  return read_divisors(file, rope);
}

Status read_json_rope(const json& object, const Settings& settings, ModelConfig& config) {
  if (config.rope.dims == 0) config.rope.dims = int(config.head_dim);
  double rotated = 1;
  COHORT_RETURN_IF_ERROR(read_if_there(settings.number("partial_rotary_factor"), rotated));
  if (rotated != 1) return unimplemented("partly rotated heads are not supported in this family");
  COHORT_RETURN_IF_ERROR(read_if_there(settings.number("rope_theta"), config.rope.theta));
  for (const char* key : kRopeObjects) {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) continue;
    if (!found->is_object())
      return invalid_argument(concat("setting '", key, "' is not an object"));
    COHORT_RETURN_IF_ERROR(read_rope_object(*found, settings, config));
  }
  return {};
}

}  // namespace cohort
