// SPDX-License-Identifier: Apache-2.0
#include "model/families.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace cohort {
namespace {

std::vector<const Family*> families() {
  return {&llama_family(), &qwen_family(), &olmoe_family(), &deepseek_family()};
}

using Names = std::vector<std::string_view> Family::*;

Result<const Family*> family_of(std::string_view architecture, Names names) {
  std::string known;
  for (const Family* family : families())
    for (const std::string_view name : family->*names) {
      if (name == architecture) return family;
      known += concat(known.empty() ? "" : ", ", name);
    }
  return unimplemented(
      concat("architecture '", architecture, "' is not supported; supported are: ", known));
}

Status check_rope(const RopeConfig& rope, int64_t head_dim) {
  if (rope.dims < 2 || rope.dims % 2 != 0 || rope.dims > head_dim)
    return invalid_argument(concat("rotation of ", rope.dims, " of ", head_dim,
                                   " dimensions of a head: needs an even number within the head"));
  const auto usable = [](double x) { return std::isfinite(x) && x > 0; };
  bool good = usable(rope.theta) && usable(rope.linear_factor);
  if (rope.llama3)
    good = good && usable(rope.llama3->factor) && usable(rope.llama3->low_freq_factor) &&
           rope.llama3->original_context > 0 && std::isfinite(rope.llama3->high_freq_factor) &&
           rope.llama3->high_freq_factor > rope.llama3->low_freq_factor;
  if (rope.yarn)
    good = good && rope.theta > 1 && usable(rope.yarn->factor) && usable(rope.yarn->beta_fast) &&
           usable(rope.yarn->beta_slow) && usable(rope.yarn->attention_factor) &&
           rope.yarn->original_context > 0;
  for (const float divisor : rope.frequency_divisors) good = good && usable(divisor);
  if (!good) return invalid_argument("the settings of the rotary embedding are out of range");
  const size_t divisors = rope.frequency_divisors.size();
  if (divisors != 0 && divisors != size_t(rope.dims / 2))
    return invalid_argument(
        concat(divisors, " rope frequencies for ", rope.dims, " rotated dimensions"));
  for (const double frequency : rope_frequencies(rope))
    if (!std::isfinite(frequency))
      return invalid_argument("the settings of the rotary embedding leave no finite frequency");
  return {};
}

Status check_experts(const ExpertsConfig& e) {
  if (e.count == 0) return {};
  if (e.per_token < 1 || e.per_token > e.count)
    return invalid_argument(concat(e.per_token, " of ", e.count, " experts for each token"));
  if (e.groups < 1 || e.count % e.groups != 0 || e.groups_per_token < 1 ||
      e.groups_per_token > e.groups)
    return invalid_argument(concat(e.count, " experts in ", e.groups, " groups, of which ",
                                   e.groups_per_token, " may be chosen from"));
  const int64_t group = e.count / e.groups;
  if (e.per_token > e.groups_per_token * group)
    return invalid_argument(concat(e.groups_per_token, " groups of ", group,
                                   " experts are too few to choose ", e.per_token, " experts"));
  if (e.group_score == ExpertsConfig::GroupScore::two_largest && group < 2)
    return invalid_argument("groups of one expert have no two best ones");
  if (!(std::isfinite(e.scale) && e.scale > 0))
    return invalid_argument(concat("the experts' outputs are multiplied by ", e.scale));
  return {};
}

// Relations that hold in every family.
Status check_config(const ModelConfig& c) {
  if (c.heads % c.kv_heads != 0)
    return invalid_argument(
        concat(c.heads, " query heads cannot be shared out to ", c.kv_heads, " key-value heads"));
  if (c.head_dim < 1) return invalid_argument("heads have no dimensions");
  if (!(c.norm_eps > 0 && c.norm_eps < 1))
    return invalid_argument(concat("epsilon of the norms is ", c.norm_eps));
  if (!std::isfinite(c.score_scale) || c.score_scale < 0)
    return invalid_argument(concat("attention's scores are multiplied by ", c.score_scale));
  COHORT_RETURN_IF_ERROR(check_experts(c.experts));
  return check_rope(c.rope, c.head_dim);
}

Result<KnownModel> checked(const Family& family, Result<ModelConfig> config) {
  if (!config.ok()) return config.status();
  config->family = std::string(family.name);
  COHORT_RETURN_IF_ERROR(check_config(*config));
  return KnownModel{&family, *std::move(config)};
}

}  // namespace

int64_t size_of(Extent extent, const ModelConfig& config) {
  switch (extent) {
    case Extent::one:
      return 1;
    case Extent::hidden:
      return config.hidden;
    case Extent::ffn:
      return config.ffn;
    case Extent::vocab:
      return config.vocab;
    case Extent::queries:
      return config.heads * config.head_dim;
    case Extent::keys:
      return config.kv_heads * config.head_dim;
    case Extent::head:
      return config.head_dim;
    case Extent::experts:
      return config.experts.count;
    case Extent::expert_ffn:
      return config.experts.ffn;
    case Extent::shared_ffn:
      return config.experts.shared_ffn;
    case Extent::q_rank:
      return config.latent.q_rank;
    case Extent::kv_rank:
      return config.latent.kv_rank;
    case Extent::kv_down:
      return config.latent.kv_rank + config.latent.rope_dim;
    case Extent::kv_up:
      return config.heads * (config.latent.nope_dim + config.latent.value_dim);
    case Extent::values:
      return config.heads * config.latent.value_dim;
  }
  return 0;
}

Result<KnownModel> recognise(const GgufFile& file) {
  const std::optional<std::string_view> architecture = file.string("general.architecture");
  if (!architecture) return invalid_argument("setting 'general.architecture' is missing");
  COHORT_ASSIGN_OR_RETURN(const Family* family,
                          family_of(*architecture, &Family::gguf_architectures));
  return checked(*family, family->from_gguf(file));
}

Result<KnownModel> recognise(const nlohmann::json& config) {
  if (!config.is_object()) return invalid_argument("not a JSON object");
  const auto found = config.find("architectures");
  if (found == config.end() || !found->is_array() || found->size() != 1 ||
      !found->front().is_string())
    return invalid_argument("setting 'architectures' must name one architecture");
  const std::string architecture = found->front().get<std::string>();
  COHORT_ASSIGN_OR_RETURN(const Family* family, family_of(architecture, &Family::architectures));
  return checked(*family, family->from_json(config, architecture));
}

}  // namespace cohort
